"""OpenAI's `/v1/completions`: what clients send and get. Pure.

Unknown fields are ignored, as OpenAI's servers do; known ones that cannot be honoured are refused by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from services.gateway.call import Call, Origin, make_call
from services.gateway.capture import Visible
from services.gateway.fitting import FimSource
from services.gateway.protocols.common import (
    MAX_CHOICES,
    Begun,
    Finished,
    Finite,
    Seed,
    Stop,
    as_list,
    bending,
    dumps,
    read,
    unsupported,
    usage,
    with_family_stops,
)
from services.gateway.protocols.logprobs import ChoiceLogprobs
from services.gateway.sampling import make_sampling
from services.gateway.settings import GatewaySettings
from services.gateway.sse import DONE

PROTOCOL = "openai"
DEFAULT_TEMPERATURE = 1.0
NEUTRAL = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0.0}


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool = Field(default=False, description="A last chunk without choices says how many tokens it was.")


class CompletionRequest(BaseModel):
    """An OpenAI completion. With `suffix` the gateway writes the model's fill-in-the-middle prompt."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"model": "tabwise", "prompt": "def add(a, b):\n    return ", "suffix": "\n", "max_tokens": 32},
                {"model": "tabwise", "prompt": "import os\n", "max_tokens": 16, "stop": ["\n"], "stream": True},
            ]
        },
    )

    model: str = Field(max_length=200, description="Any name: all are served by the live policy.")
    prompt: str | list[Any] = Field(description="One text, or a list of one text.")
    suffix: str | None = Field(default=None, description="What stands after the cursor; null: `prompt` is sent as is.")
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: Finite | None = Field(default=None, ge=0, le=100)
    top_p: Finite | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: Stop = None
    seed: Seed | None = None
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


def begin(body: bytes, origin: Origin, settings: GatewaySettings) -> Begun:
    """Raises `ApiError`: 422 for a malformed request, 400 for one that cannot be honoured."""
    call = to_call(parse(body), origin, settings)
    return Begun(call, CompletionWriter(call))


def parse(body: bytes) -> CompletionRequest:
    """The request in `body`."""
    request = read(CompletionRequest, body)
    if request.echo:
        raise unsupported("echo", "the prompt is never echoed; leave `echo` out")
    if request.use_beam_search:
        raise unsupported("use_beam_search", "beam search is not served; leave `use_beam_search` out")
    if request.best_of not in (None, request.n or 1):
        raise unsupported("best_of", "`best_of` must equal `n`: every choice that is sampled is returned")
    if request.stream_options is not None and not request.stream:
        raise unsupported("stream_options", "`stream_options` needs `stream: true`")
    return request


def to_call(request: CompletionRequest, origin: Origin, settings: GatewaySettings) -> Call:
    """What is asked of the engine for this request."""
    prompt, stop = _prompt(request, settings), as_list(request.stop)
    if isinstance(prompt, FimSource):
        stop = with_family_stops(stop, prompt.family)
    sampling = make_sampling(
        settings,
        origin.project_id,
        temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop=stop,
    )
    return make_call(
        origin,
        settings,
        PROTOCOL,
        request.model,
        sampling,
        prompt,
        n=request.n or 1,
        top_logprobs=request.logprobs,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        distorting=_distorting(request, settings.explores_fully(origin.project_id)),
    )


def _prompt(request: CompletionRequest, settings: GatewaySettings) -> str | FimSource:
    prompt = request.prompt
    if isinstance(prompt, list):
        if len(prompt) != 1 or not isinstance(prompt[0], str):
            raise unsupported("prompt", "`prompt` must be one text (or a list of one text); token ids are not taken")
        prompt = prompt[0]
    if request.suffix is not None:
        return FimSource(settings.fim_template, prompt, request.suffix)
    if not prompt:
        raise unsupported("prompt", "`prompt` is empty")
    return prompt


def _distorting(request: CompletionRequest, full_support: bool) -> dict[str, Any]:
    bent = bending(request, NEUTRAL)
    if full_support:
        bent.pop("min_p", None)
    return bent | ({"logit_bias": request.logit_bias} if request.logit_bias else {})


class CompletionWriter:
    """Answers to one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._head = {
            "id": call.request_id,
            "object": "text_completion",
            "created": int(call.created_at.timestamp()),
            "model": call.client_model,
        }
        self._logprobs: defaultdict[int, ChoiceLogprobs] = defaultdict(ChoiceLogprobs)

    def chunk(self, visible: Visible) -> bytes | None:
        """None where there is neither text nor an end, nor a logprob."""
        logprobs = self._take(visible)
        if not visible.text and visible.finish_reason is None and not (logprobs and logprobs["tokens"]):
            return None
        choice = {
            "index": visible.index,
            "text": visible.text,
            "logprobs": logprobs,
            "finish_reason": visible.finish_reason,
            "stop_reason": visible.source.stop_reason,
        }
        return dumps(self._head | {"choices": [choice]} | ({"usage": None} if self._call.include_usage else {}))

    def tail(self, finished: Finished) -> Iterable[bytes]:
        """The usage, where `stream_options.include_usage` asks for it."""
        if self._call.include_usage:
            yield dumps(self._head | {"choices": [], "usage": usage(finished.capture)})
        yield DONE

    def answer(self, finished: Finished, seen: Sequence[Visible]) -> bytes:
        """All choices."""
        choices = [
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": self._all([visible for visible in seen if visible.index == choice.index]),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for choice in finished.capture.choices
        ]
        return dumps(self._head | {"choices": choices, "usage": usage(finished.capture)})

    def _take(self, visible: Visible) -> dict[str, Any] | None:
        return None if self._call.top_logprobs is None else self._logprobs[visible.index].take(visible)

    def _all(self, visibles: Sequence[Visible]) -> dict[str, Any] | None:
        if self._call.top_logprobs is None:
            return None
        entries = [self._logprobs[visible.index].take(visible) for visible in visibles]
        keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        return {key: [value for entry in entries for value in entry[key]] for key in keys}


def model_card(name: str, served: str, created: int) -> dict[str, Any]:
    """One model. `root` is what serves it, whatever it is called."""
    return {"id": name, "object": "model", "created": created, "owned_by": "tabwise", "root": served, "parent": None}


def model_list(names: Sequence[str], created: int) -> dict[str, Any]:
    """The answer to `/v1/models`."""
    return {"object": "list", "data": [model_card(name, names[0], created) for name in names]}
