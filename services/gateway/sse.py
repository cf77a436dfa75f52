"""Server-sent events, both ways. Pure: bytes in, payloads out."""

from __future__ import annotations

from services.gateway.errors import EngineFailed

DONE = b"[DONE]"
MAX_EVENT_BYTES = 8 * 1024 * 1024


class SseDecoder:
    """Splits a byte stream into the `data` of its events, however the bytes are cut.

    Works on bytes: a character that is cut in two is whole again before anybody decodes it. Comments and other
    fields are skipped, LF and CRLF both end a line, an event that is not closed by an empty line is not given out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """The events that `received` completes. Raises `EngineFailed` where one grows without end."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EngineFailed("garbage")
        events: list[bytes] = []
        for line in lines:
            self._line(line.removesuffix(b"\r"), events)
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data = []


def encode(payload: bytes) -> bytes:
    """One event. Never a comment: `: ping` makes Continue's completion vanish."""
    return b"data: " + payload + b"\n\n"
