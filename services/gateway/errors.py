"""What can happen between us and the engine, named by what the gateway does about it.

TemporaryError
└── EngineFailed       the answer broke off or is nonsense; tokens may have been sent already
    └── EngineAway     nothing was sampled yet: another replica may be asked, or the client is told to come back
"""

from __future__ import annotations

from shared.kit.errors import TemporaryError
from shared.web.errors import ApiError


class EngineFailed(TemporaryError):
    """`kind` is a metric label: `reset`, `timeout`, `garbage`, `engine_error`, `truncated`, `status`, `connect`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the engine failed: {kind}")
        self.kind = kind


class EngineAway(EngineFailed):
    """No token was received. `retry`: whether another replica is worth asking."""

    def __init__(self, kind: str, *, retry: bool = True) -> None:
        super().__init__(kind)
        self.retry = retry


def unavailable() -> ApiError:
    """503. Continue retries on `"code": 429` and on one word; this body has neither."""
    message = "the completion engine cannot be reached; try again shortly"
    return ApiError(503, "engine_unavailable", message, type_="server_error", headers={"Retry-After": "1"})


def broken_off() -> ApiError:
    """The body of the SSE event that ends a stream whose engine failed."""
    return ApiError(502, "engine_failed", "the engine stopped in mid-answer", type_="server_error")


def refused(status: int, message: str, param: str | None) -> ApiError:
    """The engine's own 4xx in our shape."""
    message = message.replace("overloaded", "busy").replace("Overloaded", "Busy")
    if "context length" in message or param in ("input_tokens", "input_text"):
        return ApiError(400, "context_length_exceeded", message, param="prompt")
    return ApiError(status, "refused_by_engine", message, param=param)
