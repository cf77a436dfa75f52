"""ASGI middleware: events go straight to their endpoint, past the layers that FastAPI puts around every route.

These layers cost several times what an event itself costs (`make bench-ingest`). The endpoints are the ones that the
router has, so other methods, unknown paths and the API documentation are FastAPI's as ever; errors look the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.web.errors import ApiError

Endpoint = Callable[[Request], Awaitable[Response]]


class Door:
    """`endpoints`: those of POST, by path. Whatever is not caught here is answered further out, as a 500."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            response = await endpoint(Request(scope, receive))
        except ApiError as error:
            response = error.response()
        except ClientDisconnect:
            response = ApiError(400, "client_disconnected", "the body did not arrive whole").response()
        await response(scope, receive, send)
