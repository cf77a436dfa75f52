"""`/v1/chat/completions`: passed through, so that one URL serves the whole editor. Pure.

Looked at is only what is needed to send it on: a JSON object with a model. It is never recorded.
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from shared.web.errors import ApiError


class ChatRequest(BaseModel):
    """A chat completion; everything but `model` is the chat server's to judge."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "tabwise", "messages": [{"role": "user", "content": "Hello"}], "stream": True}]
        },
    )

    model: str = Field(min_length=1)


def read_chat(body: bytes) -> dict[str, Any]:
    """The body's object. Raises `ApiError` (422)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(422, "invalid_body", f"body: not JSON ({error.msg})") from None
    if not isinstance(value, dict):
        raise ApiError(422, "invalid_body", "body: must be a JSON object")
    if not isinstance(value.get("model"), str) or not value["model"]:
        raise ApiError(422, "invalid_body", "model: must be the name of a model", param="model")
    return value


def for_model(value: dict[str, Any], model: str) -> bytes:
    """The same request to another model."""
    return orjson.dumps(value | {"model": model})


def chat_away() -> ApiError:
    """503: nobody is there to chat."""
    message = "the chat server cannot be reached; completions are not affected"
    return ApiError(503, "chat_unavailable", message, type_="server_error", headers={"Retry-After": "5"})


def chat_broken_off() -> ApiError:
    """The body of the SSE event that ends a chat whose server failed."""
    return ApiError(502, "chat_failed", "the chat server stopped in mid-answer", type_="server_error")
