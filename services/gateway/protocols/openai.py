"""OpenAI's `/v1/completions`: what clients send and get. Pure.

Unknown fields are ignored, as OpenAI's servers do; known ones that cannot be honoured are refused by name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.gateway.call import Call
from services.gateway.capture import Capture, Visible
from services.gateway.protocols.fim import fim_prompt
from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Sampling
from shared.keys import Key
from shared.web.errors import ApiError, from_validation

PROTOCOL = "openai"
LOWEST_TEMPERATURE = 0.01
"""vLLM raises a positive temperature below this to it; what is recorded must be what was sampled at."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
StopString = Annotated[str, Field(min_length=1, max_length=1000)]


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str = Field(max_length=200)
    prompt: str | list[Any]
    suffix: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: Finite | None = Field(default=None, ge=0, le=100)
    top_p: Finite | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    n: int | None = Field(default=None, ge=1, le=16)
    stop: StopString | Annotated[list[StopString], Field(max_length=64)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    presence_penalty: Finite | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: Finite | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: Finite | None = Field(default=None, gt=0, le=100)
    min_p: Finite | None = Field(default=None, ge=0, le=1)
    logit_bias: dict[str, Finite] | None = None


_NEUTRAL = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0.0}


def parse(body: bytes) -> CompletionRequest:
    """The request in `body`. Raises `ApiError` (422 for a malformed one, 400 for one that cannot be honoured)."""
    try:
        request = CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(
            list(error.errors(include_url=False, include_input=False, include_context=False))
        ) from None
    _refuse_unsupported(request)
    return request


def _refuse_unsupported(request: CompletionRequest) -> None:
    if request.echo:
        raise _unsupported("echo", "the prompt is never echoed; leave `echo` out")
    if request.use_beam_search:
        raise _unsupported("use_beam_search", "beam search is not served; leave `use_beam_search` out")
    if request.best_of not in (None, request.n or 1):
        raise _unsupported("best_of", "`best_of` must equal `n`: every choice that is sampled is returned")
    if request.stream_options is not None and not request.stream:
        raise _unsupported("stream_options", "`stream_options` needs `stream: true`")


def _unsupported(param: str, message: str) -> ApiError:
    return ApiError(400, "unsupported_parameter", message, param=param)


def to_call(
    request: CompletionRequest, key: Key, project_id: str, settings: GatewaySettings, *, now: datetime, arrived_s: float
) -> Call:
    """What is asked of the engine for this request."""
    return Call(
        request_id=f"cmpl-{uuid.uuid4().hex}",
        created_at=now,
        arrived_s=arrived_s,
        key_id=key.key_id,
        project_id=project_id,
        protocol=PROTOCOL,
        client_model=request.model,
        prompt=_prompt(request, settings.fim_template),
        sampling=_sampling(request, settings),
        n=request.n or 1,
        top_logprobs=request.logprobs,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        distorting=_distorting(request),
    )


def _prompt(request: CompletionRequest, family: str) -> str:
    prompt = request.prompt
    if isinstance(prompt, list):
        if len(prompt) != 1 or not isinstance(prompt[0], str):
            raise _unsupported("prompt", "`prompt` must be one text (or a list of one text); token ids are not taken")
        prompt = prompt[0]
    if request.suffix:
        return fim_prompt(family, prompt, request.suffix)
    if not prompt:
        raise _unsupported("prompt", "`prompt` is empty")
    return prompt


def _sampling(request: CompletionRequest, settings: GatewaySettings) -> Sampling:
    temperature = request.temperature
    if settings.temperature_override is not None and temperature != 0:
        temperature = settings.temperature_override
    if temperature is None:
        temperature = 1.0
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return Sampling(
        temperature=max(temperature, LOWEST_TEMPERATURE) if temperature > 0 else 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or -1,
        max_tokens=min(request.max_tokens or settings.max_completion_tokens, settings.max_completion_tokens),
        seed=request.seed,
        stop=tuple(stop),
    )


def _distorting(request: CompletionRequest) -> dict[str, Any]:
    """Only what really bends the distribution: SDKs like to send neutral values."""
    given = {name: getattr(request, name) for name in _NEUTRAL}
    bent: dict[str, Any] = {name: v for name, v in given.items() if v is not None and v != _NEUTRAL[name]}
    return bent | ({"logit_bias": request.logit_bias} if request.logit_bias else {})


class Writer:
    """Answers to one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._head = {
            "id": call.request_id,
            "object": "text_completion",
            "created": int(call.created_at.timestamp()),
            "model": call.client_model,
        }

    def chunk(self, visible: Visible) -> bytes | None:
        """One streamed chunk; None where the client would learn nothing from it."""
        if not visible.text and visible.finish_reason is None and self._call.top_logprobs is None:
            return None
        choice = {
            "index": visible.index,
            "text": visible.text,
            "logprobs": self._logprobs([visible]),
            "finish_reason": visible.finish_reason,
            "stop_reason": visible.source.stop_reason,
        }
        usage = {"usage": None} if self._call.include_usage else {}
        return orjson.dumps(self._head | {"choices": [choice]} | usage)

    def usage_chunk(self, capture: Capture) -> bytes:
        """The chunk that `stream_options.include_usage` asks for."""
        return orjson.dumps(self._head | {"choices": [], "usage": _usage(capture)})

    def answer(self, capture: Capture, visibles: Iterable[Visible]) -> bytes:
        """The whole, unstreamed answer."""
        seen = list(visibles)
        choices = [
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": self._logprobs([visible for visible in seen if visible.index == choice.index]),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for choice in capture.choices
        ]
        return orjson.dumps(self._head | {"choices": choices, "usage": _usage(capture)})

    def _logprobs(self, visibles: list[Visible]) -> dict[str, Any] | None:
        if self._call.top_logprobs is None:
            return None
        parts = [visible.source for visible in visibles]
        return {
            "tokens": [piece for part in parts for piece in part.pieces],
            "token_logprobs": [value for part in parts for value in part.logprobs],
            "top_logprobs": [top for part in parts for top in part.top_logprobs],
            "text_offset": [offset for part in parts for offset in part.offsets],
        }


def _usage(capture: Capture) -> dict[str, int]:
    prompt, sampled = len(capture.prompt_token_ids), capture.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def models(served_model_name: str, created: int) -> dict[str, Any]:
    """The answer to `/v1/models`."""
    card = {"id": served_model_name, "object": "model", "created": created, "owned_by": "tabwise"}
    return {"object": "list", "data": [card]}
