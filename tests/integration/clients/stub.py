"""A gateway and an ingest in one small server: scripted completions, and everything that clients sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

KEY = "secret"


@dataclass
class Seen:
    """One request as it arrived."""

    at: float
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Stub:
    """`reply` gives the completion of a prompt; the other fields make things go wrong."""

    reply: Callable[[str], str] = lambda _: ""
    first_delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    chunk_chars: int = 3
    completion_status: int = 200
    feedback_status: int = 200
    without_done: bool = False
    error_after_chunks: int | None = None
    reset_after_chunks: int | None = None
    ready: bool = True
    completions: list[Seen] = field(default_factory=list)
    feedback: list[Seen] = field(default_factory=list)
    hung_up: list[str] = field(default_factory=list)
    """Prompts of the completions that the client closed before their end."""
    url: str = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Stub]:
        """Serve on a free port until the block ends."""
        app = web.Application()
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/v1/events/continue", self._event)
        app.router.add_post("/api/training/submit", self._event)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ready", self._ready)
        async with TestServer(app, handler_cancellation=True) as server:
            self.url = str(server.make_url("")).rstrip("/")
            yield self

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        body = await request.json()
        self.completions.append(_seen(request, body))
        if self.completion_status != 200:
            return _error(self.completion_status, "the engine is away", "engine_unavailable")
        text = self.reply(body["prompt"])
        if not body.get("stream"):
            return web.json_response({"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})
        try:
            return await self._stream(request, text)
        except (asyncio.CancelledError, ConnectionError):
            self.hung_up.append(body["prompt"])
            raise

    async def _stream(self, request: web.Request, text: str) -> web.StreamResponse:
        await asyncio.sleep(self.first_delay_s)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, start in enumerate(range(0, len(text), self.chunk_chars)):
            if number == self.error_after_chunks:
                await response.write(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n')
                return response
            if number == self.reset_after_chunks and request.transport is not None:
                request.transport.abort()
                return response
            piece = {"index": 0, "text": text[start : start + self.chunk_chars], "finish_reason": None}
            chunk = {"id": "cmpl-1", "object": "text_completion", "choices": [piece]}
            await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")
            await asyncio.sleep(self.chunk_delay_s)
        if not self.without_done:
            await response.write(b'data: {"choices": [], "usage": {"completion_tokens": 1}}\n\ndata: [DONE]\n\n')
        return response

    async def _event(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        self.feedback.append(_seen(request, await request.json()))
        if self.feedback_status >= 400:
            return _error(self.feedback_status, "the database is away", "database_unavailable")
        if request.path.startswith("/api"):
            return web.json_response({"status": "submitted", "message": "stored", "queue_position": 0})
        return web.Response(status=204)

    async def _models(self, request: web.Request) -> web.Response:
        card = {"id": "tabwise", "object": "model"}
        return self._refused(request) or web.json_response({"object": "list", "data": [card]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        if self.ready:
            return web.json_response({"status": "ready"})
        return web.json_response({"status": "not ready", "reason": "no engine answers"}, status=503)

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"Bearer {KEY}":
            return None
        return _error(401, "missing or unknown API key", "invalid_api_key")


def _seen(request: web.Request, body: dict[str, Any]) -> Seen:
    return Seen(asyncio.get_running_loop().time(), request.path, dict(request.headers), body)


def _error(status: int, message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "x", "param": None, "code": code}}, status=status)
