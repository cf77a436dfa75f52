"""ASGI middleware that counts the answers of the feedback routes, and why feedback was refused."""

from __future__ import annotations

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.ingest.metrics import IngestMetrics


class CountAnswers:
    """Outside of everything else, so that it also sees what other middleware refuses."""

    def __init__(self, app: ASGIApp, metrics: IngestMetrics, routes: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._routes:
            await self._app(scope, receive, send)
            return
        status = 0
        body = bytearray()

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.requests.labels(scope["path"], str(status)).inc()
            elif status >= 400:
                body.extend(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:  # answered 500 further out
            self._metrics.requests.labels(scope["path"], "500").inc()
            self._metrics.refused.labels("internal_error").inc()
            raise
        if status >= 400:
            self._metrics.refused.labels(orjson.loads(bytes(body))["error"]["code"]).inc()
