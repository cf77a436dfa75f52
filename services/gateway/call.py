"""One completion request, whatever protocol it came by, and what the engine is asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.contracts.generation import Sampling


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asked for, after clamping and templating; nothing of it changes later."""

    request_id: str
    created_at: datetime
    arrived_s: float
    """On the monotonic clock."""
    key_id: str
    project_id: str
    protocol: str
    client_model: str
    prompt: str
    sampling: Sampling
    n: int = 1
    top_logprobs: int | None = None
    """None: the client did not ask for logprobs."""
    stream: bool = False
    include_usage: bool = False
    path: str | None = None
    """The edited file, where the protocol tells its name."""
    language: str | None = None
    """As the editor calls it."""
    distorting: Mapping[str, Any] = field(default_factory=dict)
    """Fields passed on that bend the distribution (penalties, `logit_bias`): the learner cannot recompute it."""


def engine_body(call: Call, model: str) -> dict[str, Any]:
    """The engine's request. Every sampling field is explicit: a model's `generation_config.json` must not decide."""
    sampling = call.sampling
    body: dict[str, Any] = {
        "model": model,
        "prompt": call.prompt,
        "n": call.n,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": list(sampling.stop),
        "include_stop_str_in_output": True,
        "skip_special_tokens": not any(stop.startswith("<|") for stop in sampling.stop),
        "stream": True,
        "return_token_ids": True,
        "logprobs": call.top_logprobs or 0,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body | dict(call.distorting)
