"""The one seam to the engine: HTTP requests that are answered by server-sent events.

Raises `ApiError` where the engine refuses the request (4xx), `EngineAway` before the first event, `EngineFailed` after.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Self

import aiohttp
import orjson

from services.gateway.errors import EngineAway, EngineFailed, refused
from services.gateway.settings import GatewaySettings
from services.gateway.sse import DONE, SseDecoder
from shared.web.errors import ApiError

_PASSED_ON = (400, 404, 413, 422)
_HEADERS = {"Content-Type": "application/json"}
_SETTLE_S = 0.5
_IDLE_S = 4.0
"""Shorter than the 5 s for which the engine keeps an idle connection."""


class EngineAnswer:
    """One open answer. `first` is its first event, which has been received; `batches` are the others."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.first = b""
        self._response = response
        self._decoder = SseDecoder()
        self._ready: list[bytes] = []
        self._watch: Watch | None = None

    async def receive_first(self) -> None:
        """Wait for it. Raises `EngineAway`."""
        try:
            self._ready = await self._receive()
        except EngineFailed as error:
            raise EngineAway(error.kind) from error
        self.first = self._ready.pop(0)

    def watch(self, gap_s: float, deadline_s: float) -> None:
        """From now on `EngineFailed` where no byte comes for `gap_s`, or the answer goes on after `deadline_s`."""
        self._watch = Watch(self._response.content, gap_s, deadline_s)

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Payloads up to `[DONE]`, those together that came together. Raises `EngineFailed` where that is missing."""
        while DONE not in self._ready:
            if self._ready:
                yield self._ready
            self._ready = await self._receive()
        yield self._ready[: self._ready.index(DONE)]

    async def _receive(self) -> list[bytes]:
        watch = self._watch
        while True:
            try:
                if watch is not None:
                    watch.waiting_since_s = time.monotonic()
                received = await self._response.content.readany()
                if watch is not None:
                    watch.waiting_since_s = None
            except (aiohttp.ClientError, OSError) as error:
                raise EngineFailed("reset") from error
            if not received:
                raise EngineFailed("truncated")
            events = self._decoder.feed(received)
            if events:
                return events

    async def settle(self) -> None:
        """After the last wanted event: read the rest (`[DONE]`), so that the connection can be used again."""
        with contextlib.suppress(TimeoutError, EngineFailed, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_SETTLE_S):
                while await self._response.content.readany():
                    pass

    def close(self) -> None:
        """Hang up: the engine stops generating. A connection that is settled already stays in the pool."""
        if self._watch is not None:
            self._watch.stop()
        self._response.close()


class Watch:
    """Ends a read that takes too long. One timer per answer, not per token: it looks again when it could be time."""

    def __init__(self, content: aiohttp.StreamReader, gap_s: float, deadline_s: float) -> None:
        self.waiting_since_s: float | None = None
        """None: whoever reads is busy elsewhere; a client that reads slowly is not the engine's fault."""
        self._content = content
        self._gap_s = gap_s
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._look_in(min(gap_s, deadline_s - time.monotonic()))

    def _look_in(self, wait_s: float) -> None:
        self._timer = self._loop.call_later(max(wait_s, 0.0), self._look)

    def _look(self) -> None:
        now = time.monotonic()
        since_s = now if self.waiting_since_s is None else self.waiting_since_s
        if now >= self._deadline_s:
            self._content.set_exception(EngineFailed("total_timeout"))
        elif now >= since_s + self._gap_s:
            self._content.set_exception(EngineFailed("gap_timeout"))
        else:
            self._look_in(min(since_s + self._gap_s, self._deadline_s) - now)

    def stop(self) -> None:
        """The answer is closed."""
        self._timer.cancel()


class Upstream:
    """A pool of connections to all replicas, and a way of asking on a fresh one."""

    def __init__(self, session: aiohttp.ClientSession, fresh: aiohttp.ClientSession, settings: GatewaySettings) -> None:
        self._session = session
        self._fresh = fresh
        self._settings = settings

    @classmethod
    def create(cls, settings: GatewaySettings) -> Self:
        """Call inside a running event loop. As many connections as there are requests."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.engine_connect_timeout_s)
        kept = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
        fresh = aiohttp.TCPConnector(limit=0, force_close=True)
        return cls(
            aiohttp.ClientSession(connector=kept, timeout=timeout, auto_decompress=False),
            aiohttp.ClientSession(connector=fresh, timeout=timeout, auto_decompress=False),
            settings,
        )

    async def open(self, url: str, body: bytes, *, limit_s: float, deadline_s: float) -> EngineAnswer:
        """Ask the replica at `url`; returns when its first event is there.

        `limit_s`: for that event; then `EngineAway("try_timeout")`. `deadline_s`: of the answer, monotonic clock.
        """
        answer: EngineAnswer | None = None
        try:
            async with asyncio.timeout(limit_s):
                response = await self._post(f"{url}/v1/completions", body)
                answer = EngineAnswer(response)
                await _check(response)
                await answer.receive_first()
        except BaseException as error:
            if answer is not None:
                answer.close()
            if isinstance(error, TimeoutError):
                raise EngineAway("try_timeout") from error
            raise
        answer.watch(self._settings.engine_gap_timeout_s, deadline_s)
        return answer

    async def _post(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        """A kept connection may be closed by the replica just as the request is sent: then once more on a fresh one."""
        try:
            return await self._session.post(url, data=body, headers=_HEADERS)
        except (aiohttp.ClientError, OSError) as error:
            if _away(error).kind != "reset":
                raise _away(error) from error
        try:
            return await self._fresh.post(url, data=body, headers=_HEADERS)
        except (aiohttp.ClientError, OSError) as error:
            raise _away(error) from error

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
        await self._fresh.close()


def _away(error: Exception) -> EngineAway:
    if isinstance(error, aiohttp.ServerTimeoutError | aiohttp.ClientConnectorError):
        return EngineAway("connect")
    return EngineAway("garbage" if isinstance(error, aiohttp.ClientResponseError) else "reset")


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    if response.status not in _PASSED_ON:
        raise EngineAway("busy" if response.status == 429 else "status")
    raise await _refusal(response)


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    try:
        error = orjson.loads(await response.read())["error"]
        return refused(response.status, str(error["message"]), error.get("param"))
    except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return refused(response.status, "the engine refused the request", None)
