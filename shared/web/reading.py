"""uvicorn's HTTP protocol with what it lacks: a request must arrive within a time, and its head has a size.

Without this a client that sends a byte now and then holds its connection for ever, and httptools takes a head of any
length into memory. A request that arrives in one piece, as nearly all do, costs no timer.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.web.errors import ApiError

MAX_HEAD_BYTES = 32_768
"""Method, URL and headers together. A head that comes in one piece may be as long as the piece (256 KiB at most)."""


def reading_within(seconds: float) -> type[HttpToolsProtocol]:
    """What to give uvicorn as `http`: a whole request, or the first byte of a new connection, within `seconds`."""

    class Within(_Reading):
        limit_s = seconds

    return Within


class _Reading(HttpToolsProtocol):
    limit_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._whole = False
        self._in_head = True
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.limit_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._whole, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._whole:
            if self._timer is not None:
                self._stop_timer()
            return
        if self._timer is None:
            self._timer = self.loop.call_later(self.limit_s, self._too_slow)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(ApiError(431, "head_too_large", f"URL and headers are larger than {MAX_HEAD_BYTES} bytes"))

    def _too_slow(self) -> None:
        self._timer = None
        self._refuse(ApiError(408, "request_timeout", f"the request did not arrive within {self.limit_s:g} s"))

    def _refuse(self, error: ApiError) -> None:
        """Nothing is said where an answer has begun, or where nobody said anything."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        answering = not self._in_head and self.cycle.response_started
        if not answering and (self._head_bytes or not self._in_head):
            self.transport.write(_raw(error))
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _raw(error: ApiError) -> bytes:
    body = orjson.dumps(error.body())
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
