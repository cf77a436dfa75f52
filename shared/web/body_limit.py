"""ASGI middleware: a body over the limit is answered 413 before it is read whole."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.web.errors import ApiError


class BodyLimit:
    """Refuses by `Content-Length` at once, and counts the bytes of a chunked body as they come."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await self._error().response()(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._error()
            return message

        await self._app(scope, counted, send)

    def _error(self) -> ApiError:
        return ApiError(413, "body_too_large", f"the body is larger than {self._max_bytes} bytes")
