"""Builders of messages for every test: a whole, valid value, of which a test names only what it is about."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from shared.contracts.experience import Experience, Reference, Sample
from shared.contracts.generation import Generation, PolicySpan, Sampling
from shared.contracts.ids import new_request_id

KEY_SECRET = "test-token"
KEY_ID = "key-4c5dc9b770"
"""`KeyRing.open(KEY_SECRET)` gives this id."""
END_TOKEN = 0

_PIECES = re.compile(r"\s?\w+|\s|[^\w\s]")


def fim_prompt(prefix: str = "def add(a, b):\n    return ", suffix: str = "\n", *, path: str | None = None) -> str:
    """A prompt as Continue makes it for Qwen models."""
    named = f"<|repo_name|>ws\n<|file_sep|>{path}\n" if path else ""
    return f"{named}<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>"


def pieces(text: str) -> list[str]:
    """A made-up tokenisation: words with one blank before them, blanks, single other characters."""
    return _PIECES.findall(text)


def token_id(piece: str) -> int:
    """The same piece has the same id in every process; never `END_TOKEN`."""
    return 1 + sum((index + 1) * ord(character) for index, character in enumerate(piece)) % 1000


def make_sampling(**changes: Any) -> Sampling:
    """Full support: temperature 1, nothing cut off."""
    return Sampling(**({"temperature": 1.0, "max_tokens": 64, "stop": ("<|endoftext|>", "/src/")} | changes))


def make_generation(
    text: str = "a + b", *, prompt: str | None = None, tokens: Sequence[str] | None = None, **changes: Any
) -> Generation:
    """One choice; ends with an end token unless `finish_reason` says otherwise. `tokens` are the pieces of `text`."""
    parts = list(tokens) if tokens is not None else pieces(text)
    offsets = [sum(map(len, parts[:index])) for index in range(len(parts))]
    ids = [token_id(part) for part in parts]
    if changes.get("finish_reason", "stop") == "stop":
        ids, offsets = [*ids, END_TOKEN], [*offsets, len(text)]
    prompt = fim_prompt() if prompt is None else prompt
    created_at = changes.setdefault("created_at", datetime.now(UTC))
    request_id = changes.pop("request_id", None) or new_request_id(created_at)
    index = changes.get("choice_index", 0)
    values: dict[str, Any] = {
        "generation_id": request_id if index == 0 else f"{request_id}-{index}",
        "request_id": request_id,
        "key_id": KEY_ID,
        "project_id": "default",
        "protocol": "openai",
        "client_model": "qwen2.5-coder-team",
        "replica": "http://127.0.0.1:8000",
        "prompt": prompt,
        "prompt_token_ids": [token_id(piece) for piece in pieces(prompt)],
        "text": text,
        "token_ids": ids,
        "logprobs": [-0.5] * len(ids),
        "text_offsets": offsets,
        "finish_reason": "stop",
        "sampling": make_sampling(),
        "policy_spans": [PolicySpan(version=changes.pop("policy_version", 0), start=0, end=len(ids))],
        "first_token_s": 0.02,
        "total_s": 0.1,
    }
    return Generation(**(values | changes))


def rlinf_event(generation: Generation | None = None, *, accepted: bool = True, **changes: Any) -> dict[str, Any]:
    """Body of `POST /api/training/submit` about the whole text of `generation`."""
    generation = generation or make_generation()
    return {
        "completionId": str(uuid.uuid4()),
        "filepath": "file:///home/dev/ws/main.py",
        "prefix": "…",
        "suffix": "…",
        "prompt": generation.prompt,
        "completion": generation.text,
        "modelProvider": "openai",
        "modelName": generation.client_model,
        "accepted": accepted,
        "timestamp": "2026-11-20T12:00:00.000Z",
        "time": 4294,
        "uniqueId": "d41d8cd9",
        "numLines": 1,
        "cacheHit": False,
    } | changes


def continue_data(
    generation: Generation | None = None, *, accepted: bool | None = True, **changes: Any
) -> dict[str, Any]:
    """Data of stock Continue's `autocomplete` event, schema 0.2.0, every field of it."""
    data = rlinf_event(generation, accepted=bool(accepted)) | {
        "eventName": "autocomplete",
        "schema": "0.2.0",
        "userId": "machine-1",
        "userAgent": "Visual Studio Code/1.99.0 (Continue/1.2.0)",
        "selectedProfileId": "local",
        "disable": False,
        "maxPromptTokens": 1024,
        "debounceDelay": 350,
        "maxSuffixPercentage": 0.2,
        "prefixPercentage": 0.3,
        "transform": True,
        "multilineCompletions": "auto",
        "slidingWindowPrefixPercentage": 0.75,
        "slidingWindowSize": 500,
        "useCache": False,
        "onlyMyCode": True,
        "useRecentlyEdited": True,
        "useImports": True,
        "gitRepo": "https://example.org/team/repo",
        "enabledStaticContextualization": False,
    }
    del data["numLines"]
    if accepted is None:
        del data["accepted"]
    return data | changes


def continue_event(
    generation: Generation | None = None,
    *,
    accepted: bool | None = True,
    envelope: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Body of `POST /v1/events/continue`; `changes` go into the data."""
    outside = {"name": "autocomplete", "schema": "0.2.0", "level": "all", "profileId": "local"}
    return outside | {"data": continue_data(generation, accepted=accepted, **changes)} | (envelope or {})


def tabby_event(generation: Generation | None = None, event: str = "view", **changes: Any) -> dict[str, Any]:
    """Body of Tabby's `POST /v1/events` about `generation`, in the display `view-1` unless told otherwise."""
    generation = generation or make_generation()
    return {
        "type": event,
        "completion_id": generation.request_id,
        "choice_index": generation.choice_index,
        "view_id": "view-1",
        "elapsed": 1200,
    } | changes


def make_sample(text: str = "a + b", *, policy_version: int = 0, logprob: float = math.log(0.5)) -> Sample:
    """A completion with all tokens credited."""
    ids = [*map(token_id, pieces(text)), END_TOKEN]
    return Sample(
        text=text,
        token_ids=ids,
        logprobs=[logprob] * len(ids),
        credited_tokens=len(ids),
        policy_version=policy_version,
    )


def make_experience(text: str = "a + b", *, accepted: bool = True, **changes: Any) -> Experience:
    """A display of `text`, accepted or rejected, with what follows from that."""
    prompt = changes.pop("prompt", fim_prompt())
    values: dict[str, Any] = {
        "experience_id": f"exp-{uuid.uuid4().hex}",
        "generation_id": f"cmpl-{uuid.uuid4().hex}",
        "project_id": "default",
        "key_id": KEY_ID,
        "language": "python",
        "feedback_at": datetime.now(UTC),
        "prompt": prompt,
        "prompt_token_ids": [token_id(piece) for piece in pieces(prompt)],
        "sampling": make_sampling(),
        "shown": make_sample(text, policy_version=changes.pop("policy_version", 0)),
        "shown_text": text,
        "label": "accepted" if accepted else "rejected",
        "reward": 0.75 if accepted else -0.25,
        "reference": Reference(kind="accepted", text=text) if accepted else None,
    }
    return Experience(**(values | changes))
