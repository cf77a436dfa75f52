"""Servers that are not engines: a chat server and an ingest, on real ports in this event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

CHUNKS = [b'data: {"n": "\xc3', b'\xa9"}\n\n', b"data: [DONE]\n\n"]


@dataclass
class Other:
    """What it was asked, and how it answers."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    status: int = 200
    content_type: str = "text/event-stream"
    answer: list[bytes] = field(default_factory=lambda: list(CHUNKS))
    pause_s: float = 0.0
    break_after: int | None = None
    """Reset the connection after so many parts."""
    hung_up: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any POST."""
        self.bodies.append(await request.read())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.queries.append(request.query_string)
        response = web.StreamResponse(status=self.status, headers={"Content-Type": self.content_type})
        await response.prepare(request)
        try:
            for number, part in enumerate(self.answer):
                if number == self.break_after and request.transport is not None:
                    request.transport.abort()
                    return response
                await response.write(part)
                await asyncio.sleep(self.pause_s)
        except (asyncio.CancelledError, ConnectionResetError):
            self.hung_up += 1
            raise
        return response


@asynccontextmanager
async def other_server(path: str, **changes: Any) -> AsyncIterator[Other]:
    """One that answers `POST path`, until the block ends."""
    other = Other(**changes)
    app = web.Application()
    app.router.add_post(path, other.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    other.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield other
    finally:
        await runner.cleanup()
