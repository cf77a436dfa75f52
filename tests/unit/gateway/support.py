"""Values that the gateway's unit tests share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from services.gateway.call import Call
from services.gateway.chunks import Delta
from shared.contracts.generation import Sampling

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def a_call(**changes: Any) -> Call:
    """A streamed request for one choice."""
    sampling = changes.pop("sampling", Sampling(temperature=0.8, max_tokens=32, stop=tuple(changes.pop("stop", ()))))
    values: dict[str, Any] = {
        "request_id": "cmpl-1",
        "created_at": NOW,
        "arrived_s": 0.0,
        "key_id": "key-1",
        "project_id": "default",
        "protocol": "openai",
        "client_model": "qwen2.5-coder-team",
        "prompt": "def f",
        "sampling": sampling,
        "stream": True,
    }
    return Call(**(values | changes))


def a_delta(text: str = "x", **changes: Any) -> Delta:
    """One token of choice 0 by version 3."""
    token_ids = changes.get("token_ids", [7])
    count = len(token_ids or [])
    values: dict[str, Any] = {
        "index": 0,
        "text": text,
        "token_ids": token_ids,
        "logprobs": [-0.5] * count,
        "pieces": [text] * count,
        "offsets": [0] * count,
        "top_logprobs": [None] * count,
        "versions": None,
        "version": "3",
        "finish_reason": None,
        "stop_reason": None,
        "prompt_token_ids": [1, 2],
    }
    return Delta(**(values | changes))
