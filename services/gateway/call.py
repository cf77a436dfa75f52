"""One completion request, whatever protocol it came by, and what the engine is asked for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from services.gateway.fitting import FimSource
from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Sampling
from shared.contracts.ids import new_request_id
from shared.fim import SPECIAL_TOKENS

_SHORTEST_PROMPT = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks, and when."""

    key_id: str
    project_id: str
    created_at: datetime
    arrived_s: float
    """On the monotonic clock."""


Enough = Callable[[str, float], bool]
"""Whether a choice may end here, from its text and the seconds since the first token."""


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
    fim: FimSource | None = None
    """What the prompt was made of, where the gateway made it; None: the client did, and nobody may change it."""
    enough: Enough | None = None
    """Ends choices before the engine does; None: it never does."""
    distorting: Mapping[str, Any] = field(default_factory=dict)
    """Fields passed on that bend the distribution (penalties, `logit_bias`): the learner cannot recompute it."""

    def shorter(self) -> Call | None:
        """The same with a prompt half as long, for an engine to which it was too long; None: it cannot be cut."""
        if self.fim is None or len(self.prompt) < _SHORTEST_PROMPT:
            return None
        prompt = self.fim.prompt(len(self.prompt) // 2)
        return replace(self, prompt=prompt) if len(prompt) < len(self.prompt) else None


def make_call(
    origin: Origin,
    settings: GatewaySettings,
    protocol: str,
    model: str,
    sampling: Sampling,
    prompt: str | FimSource,
    **more: Any,
) -> Call:
    """A call with an id of its own. A `FimSource` is written out, as long as the engine's context allows."""
    fim = prompt if isinstance(prompt, FimSource) else None
    return Call(
        request_id=new_request_id(origin.created_at),
        created_at=origin.created_at,
        arrived_s=origin.arrived_s,
        key_id=origin.key_id,
        project_id=origin.project_id,
        protocol=protocol,
        client_model=model,
        prompt=prompt if isinstance(prompt, str) else prompt.prompt(settings.max_prompt_chars),
        sampling=sampling,
        path=fim.path if fim else None,
        language=fim.language if fim else None,
        fim=fim,
        **more,
    )


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
        "skip_special_tokens": not any(map(_is_special, sampling.stop)),
        "stream": True,
        "return_token_ids": True,
        "logprobs": call.top_logprobs or 0,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body | dict(call.distorting)


def _is_special(stop: str) -> bool:
    """Whether the engine only finds `stop` in text that shows special tokens."""
    return stop.startswith("<|") or stop in SPECIAL_TOKENS
