"""What the engine says: one SSE payload of vLLM 0.32 (with our version stamp) as values. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson

from services.gateway.errors import EngineFailed


@dataclass(slots=True)  # not frozen: that would cost as much as all the rest of a token
class Delta:
    """What one chunk adds to one choice. T = its new tokens; `token_ids` None: the engine did not say."""

    index: int
    text: str
    token_ids: list[int] | None
    logprobs: list[float | None]
    pieces: list[str]
    offsets: list[int]
    top_logprobs: list[dict[str, float] | None]
    versions: list[tuple[str, int, int]] | None
    """Tokens [start, end) of the choice were sampled by this version, where the chunk has several."""
    version: str | None
    """The version that sampled the chunk's (first) tokens."""
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_token_ids: list[int] | None


def parse_chunk(payload: bytes) -> list[Delta]:
    """One delta per choice in the chunk (none in a usage chunk). Raises `EngineFailed`."""
    chunk = _json(payload)
    if not isinstance(chunk, dict):
        raise EngineFailed("garbage")
    if "error" in chunk:
        raise EngineFailed("engine_error")
    try:
        return [_delta(choice, chunk) for choice in chunk["choices"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineFailed("garbage") from error


def _json(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(payload)  # slower, but reads the bare NaN that a broken logprob is written as
    except ValueError as error:
        raise EngineFailed("garbage") from error


def _delta(choice: dict[str, Any], chunk: dict[str, Any]) -> Delta:
    logprobs = choice.get("logprobs") or {}
    versions = chunk.get("weight_versions")
    return Delta(
        index=int(choice["index"]),
        text=str(choice["text"]),
        token_ids=choice.get("token_ids"),
        logprobs=logprobs.get("token_logprobs") or [],
        pieces=logprobs.get("tokens") or [],
        offsets=logprobs.get("text_offset") or [],
        top_logprobs=logprobs.get("top_logprobs") or [],
        versions=[(str(version), int(start), int(end)) for version, start, end in versions] if versions else None,
        version=chunk.get("weight_version"),
        finish_reason=choice.get("finish_reason"),
        stop_reason=choice.get("stop_reason"),
        prompt_token_ids=choice.get("prompt_token_ids"),
    )
