"""The one seam to the engine: HTTP requests that are answered by server-sent events.

Raises `ApiError` where the engine refuses the request (4xx), `EngineAway` before the first event, `EngineFailed` after.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any, Self

import aiohttp
import orjson

from services.gateway.errors import EngineAway, EngineFailed, refused
from services.gateway.settings import GatewaySettings
from services.gateway.sse import DONE, SseDecoder
from shared.web.errors import ApiError

_PASSED_ON = (400, 404, 413, 422)
_SETTLE_S = 0.5
_IDLE_S = 4.0
"""Shorter than the 5 s for which the engine keeps an idle connection."""


class EngineAnswer:
    """One open answer. `events` starts with the first event, which has already been received."""

    def __init__(self, response: aiohttp.ClientResponse, deadline_s: float) -> None:
        self._response = response
        self._deadline_s = deadline_s
        self._decoder = SseDecoder()
        self._ready: list[bytes] = []

    async def first_event(self, timeout_s: float) -> None:
        """Wait for it. Raises `EngineAway`."""
        try:
            async with asyncio.timeout(timeout_s):
                self._ready = await self._receive()
        except TimeoutError as error:
            raise EngineAway("timeout", retry=False) from error
        except EngineFailed as error:
            raise EngineAway(error.kind) from error

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Payloads up to `[DONE]`. Raises `EngineFailed` where the answer ends without that."""
        while True:
            for event in self._ready:
                if event == DONE:
                    return
                yield event
            try:
                async with asyncio.timeout(self._deadline_s - time.monotonic()):
                    self._ready = await self._receive()
            except TimeoutError as error:
                raise EngineFailed("timeout") from error

    async def _receive(self) -> list[bytes]:
        while True:
            try:
                received = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise EngineFailed("reset") from error
            if not received:
                raise EngineFailed("truncated")
            events = self._decoder.feed(received)
            if events:
                return events

    async def settle(self) -> None:
        """After the last wanted event: read the rest (`[DONE]`), so that the connection can be used again."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_SETTLE_S):
                while await self._response.content.readany():
                    pass

    def close(self) -> None:
        """Hang up: the engine stops generating. A connection that is settled already stays in the pool."""
        self._response.close()


class Upstream:
    """A pool of connections to all replicas."""

    def __init__(self, session: aiohttp.ClientSession, settings: GatewaySettings) -> None:
        self._session = session
        self._settings = settings

    @classmethod
    def create(cls, settings: GatewaySettings) -> Self:
        """Call inside a running event loop. As many connections as there are requests."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.engine_connect_timeout_s)
        return cls(aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False), settings)

    async def open(self, url: str, body: dict[str, Any]) -> EngineAnswer:
        """Ask the replica at `url`; returns when its first event is there."""
        deadline_s = time.monotonic() + self._settings.engine_total_timeout_s
        first_s = min(self._settings.engine_first_token_timeout_s, self._settings.engine_total_timeout_s)
        response = await self._post(f"{url}/v1/completions", orjson.dumps(body), first_s)
        answer = EngineAnswer(response, deadline_s)
        try:
            await _check(response)
            await answer.first_event(first_s)
        except BaseException:
            answer.close()
            raise
        return answer

    async def _post(self, url: str, body: bytes, timeout_s: float) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._session.post(url, data=body, headers={"Content-Type": "application/json"})
        except aiohttp.ServerTimeoutError as error:
            raise EngineAway("connect") from error
        except TimeoutError as error:
            raise EngineAway("timeout", retry=False) from error
        except aiohttp.ClientConnectorError as error:
            raise EngineAway("connect") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineAway("reset") from error

    async def healthy(self, url: str) -> bool:
        """Whether the replica says that it can serve."""
        try:
            async with asyncio.timeout(self._settings.engine_connect_timeout_s):
                async with self._session.get(f"{url}/health") as response:
                    return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    if response.status not in _PASSED_ON:
        raise EngineAway("status")
    raise await _refusal(response)


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    try:
        error = orjson.loads(await response.read())["error"]
        return refused(response.status, str(error["message"]), error.get("param"))
    except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return refused(response.status, "the engine refused the request", None)
