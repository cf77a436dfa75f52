"""What the gateway only passes on: chat, and events for ingest. Bytes in, bytes out; nothing is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Self

import aiohttp
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.hangup import ClientGone, unless_gone
from services.gateway.protocols.chat import chat_broken_off
from services.gateway.sse import encode
from shared.kit.errors import TemporaryError

_LONGEST_S = 3600.0
_KEPT_HEADERS = ("content-type", "content-length", "content-encoding", "cache-control", "retry-after", "x-request-id")
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class NobodyThere(TemporaryError):
    """Neither status nor headers came."""


class Forward:
    """A pool of connections to servers that are not replicas."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    def create(cls, connect_timeout_s: float) -> Self:
        """Call inside a running event loop."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        connector = aiohttp.TCPConnector(limit=0)
        return cls(aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False))

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], limit_s: float) -> aiohttp.ClientResponse:
        """Returns when the answer's headers are there. Raises `NobodyThere`."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._session.post(
                    url, data=body, headers={"Accept-Encoding": "identity", **headers}, allow_redirects=False
                )
        except _BROKEN as error:
            raise NobodyThere(type(error).__name__) from error

    async def post_whole(
        self, url: str, body: bytes, headers: Mapping[str, str], limit_s: float
    ) -> tuple[int, bytes, str | None]:
        """Status, body and content type. Raises `NobodyThere`."""
        try:
            async with asyncio.timeout(limit_s):
                response = await self.post(url, body, headers, limit_s)
                async with response:
                    return response.status, await response.read(), response.headers.get("content-type")
        except _BROKEN as error:
            raise NobodyThere(type(error).__name__) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class PassedOn(Response):
    """An answer of another server, byte for byte as it comes; whoever sends it is hung up on with the client."""

    def __init__(self, answer: aiohttp.ClientResponse, gap_s: float, on_end: Callable[[], None]) -> None:
        kept = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
        super().__init__(status_code=answer.status, headers=kept | {"X-Accel-Buffering": "no"})
        if "content-length" not in kept:
            del self.headers["content-length"]
        self._answer = answer
        self._gap_s = gap_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send(send), _LONGEST_S)
        except ClientGone:
            pass
        finally:
            self._answer.close()
            self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        """Where it breaks off, a stream ends with an error event; of anything else the client sees that it is cut."""
        try:
            while part := await asyncio.wait_for(self._answer.content.readany(), self._gap_s):
                yield part
        except _BROKEN:
            if not self.headers.get("content-type", "").startswith("text/event-stream"):
                raise
            yield encode(orjson.dumps(chat_broken_off().body()))
