"""How a completion reaches the client: as server-sent events while it is sampled, or whole."""

from __future__ import annotations

from contextlib import aclosing

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.capture import Visible
from services.gateway.completion import Completion
from services.gateway.errors import EngineFailed, broken_off
from services.gateway.hangup import ClientGone, unless_gone
from services.gateway.protocols.common import Writer
from services.gateway.sse import encode


class StreamedAnswer(Response):
    """Sends each token as it comes. The completion is open already, so the status is 200."""

    media_type = "text/event-stream"

    def __init__(self, completion: Completion, writer: Writer, limit_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._completion = completion
        self._writer = writer
        self._limit_s = limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send(send), self._limit_s)
            await self._completion.settle()  # not watched: to the server a client whose answer is whole is gone
        except ClientGone:
            self._completion.end(client_gone=True)
        finally:
            self._completion.end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._completion.visibles()) as batches:
                async for visibles in batches:
                    events = b"".join(encode(chunk) for chunk in map(self._writer.chunk, visibles) if chunk is not None)
                    if events:
                        await send({"type": "http.response.body", "body": events, "more_body": True})
            tail = self._writer.tail(self._completion.finished())
        except EngineFailed as error:
            tail = [orjson.dumps(broken_off(error.kind).body())]
        await send({"type": "http.response.body", "body": b"".join(map(encode, tail)), "more_body": False})


async def collect(completion: Completion) -> list[Visible]:
    """All of it; from another replica where one breaks off, because nothing was sent yet. Raises `EngineFailed`."""
    while True:
        try:
            async with aclosing(completion.visibles()) as batches:
                seen = [visible async for batch in batches for visible in batch]
        except EngineFailed:
            if not await completion.again():
                raise
        else:
            await completion.settle()
            return seen
