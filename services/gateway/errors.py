"""What can happen between us and the engine, named by what the gateway does about it.

TemporaryError
└── EngineFailed       the answer broke off or is nonsense; tokens may have been sent already
    └── EngineAway     nothing was sampled yet: another replica may be asked, or the client is told to come back
"""

from __future__ import annotations

from shared.kit.errors import TemporaryError
from shared.web.errors import ApiError

TOO_LONG = "context_length_exceeded"


class EngineFailed(TemporaryError):
    """`kind` is a metric label. An answer that broke off: `reset` (the connection did), `truncated` (it just ended),
    `garbage` (not what an engine says), `engine_error` (its own error event). Nothing yet: `connect`, `status` (an HTTP
    status that is no answer), `busy` (429). A deadline: `try_timeout`, `first_token_timeout`, `gap_timeout`,
    `total_timeout`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the engine failed: {kind}")
        self.kind = kind


class EngineAway(EngineFailed):
    """No token was received: another replica may be asked."""


def unavailable(kind: str = "") -> ApiError:
    """503. Continue retries on `"code": 429` and on one word; this body has neither."""
    retry = {"Retry-After": "1"}
    if kind.endswith("timeout"):
        message = "the completion engine took too long; try again shortly"
        return ApiError(503, "engine_timeout", message, type_="server_error", headers=retry)
    message = "the completion engine cannot be reached; try again shortly"
    return ApiError(503, "engine_unavailable", message, type_="server_error", headers=retry)


def busy() -> ApiError:
    """429: every replica says that it has too much to do."""
    message = "every replica of the completion engine has too much to do; try again shortly"
    return ApiError(429, "engine_busy", message, type_="server_error", headers={"Retry-After": "1"})


def broken_off(kind: str = "") -> ApiError:
    """The body of the SSE event that ends a stream whose engine failed."""
    if kind.endswith("timeout"):
        return ApiError(504, "engine_timeout", "the engine stalled in mid-answer", type_="server_error")
    return ApiError(502, "engine_failed", "the engine stopped in mid-answer", type_="server_error")


def refused(status: int, message: str, param: str | None) -> ApiError:
    """The engine's own 4xx in our shape."""
    message = message.replace("overloaded", "busy").replace("Overloaded", "Busy")
    if "context length" in message or param in ("input_tokens", "input_text"):
        return ApiError(400, TOO_LONG, message, param="prompt")
    return ApiError(status, "refused_by_engine", message, param=param)
