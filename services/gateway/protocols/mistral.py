"""Mistral's `/v1/fim/completions`, which editors' FIM providers speak: prefix and suffix in, chat-shaped answers out.

Continue reads `choices[0].delta.content` of every chunk, without looking whether there is a choice: no chunk may come
without one, so the usage travels on the last chunk, as Mistral's own server does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from services.gateway.call import Call, Origin, make_call
from services.gateway.capture import Visible
from services.gateway.fitting import FimSource
from services.gateway.protocols.common import (
    Begun,
    Finished,
    Finite,
    Seed,
    Stop,
    as_list,
    bending,
    dumps,
    read,
    usage,
    with_family_stops,
)
from services.gateway.sampling import make_sampling
from services.gateway.settings import GatewaySettings
from services.gateway.sse import DONE

PROTOCOL = "mistral"
DEFAULT_TEMPERATURE = 0.3
"""Codestral's."""
_NEUTRAL = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "min_tokens": 0}


class FimRequest(BaseModel):
    """Mistral's fill-in-the-middle completion."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"model": "codestral-latest", "prompt": "def add(a, b):\n    return ", "suffix": "\n", "stream": True}
            ]
        },
    )

    model: str = Field(max_length=200, description="Any name: all are served by the live policy.")
    prompt: str = Field(description="What stands before the cursor.")
    suffix: str | None = Field(default=None, description="What stands after the cursor.")
    max_tokens: int | None = Field(
        default=None, ge=1, validation_alias=AliasChoices("max_tokens", "max_completion_tokens")
    )
    min_tokens: int | None = Field(default=None, ge=0, le=2**31 - 1)
    temperature: Finite | None = Field(default=None, ge=0, le=100)
    top_p: Finite | None = Field(default=None, gt=0, le=1)
    stop: Stop = None
    random_seed: Seed | None = None
    stream: bool | None = None
    presence_penalty: Finite | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: Finite | None = Field(default=None, ge=-2, le=2)


def begin(body: bytes, origin: Origin, settings: GatewaySettings) -> Begun:
    """Raises `ApiError` (422) for a malformed request."""
    call = to_call(read(FimRequest, body), origin, settings)
    return Begun(call, FimWriter(call))


def to_call(request: FimRequest, origin: Origin, settings: GatewaySettings) -> Call:
    """What is asked of the engine for this request."""
    sampling = make_sampling(
        settings,
        origin.project_id,
        temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_tokens,
        seed=request.random_seed,
        stop=with_family_stops(as_list(request.stop), settings.fim_template),
    )
    distorting = bending(request, _NEUTRAL)
    if "min_tokens" in distorting:
        distorting["min_tokens"] = min(distorting["min_tokens"], sampling.max_tokens)
    source = FimSource(settings.fim_template, request.prompt, request.suffix or "")
    return make_call(
        origin, settings, PROTOCOL, request.model, sampling, source, stream=bool(request.stream), distorting=distorting
    )


class FimWriter:
    """Answers to one call."""

    def __init__(self, call: Call) -> None:
        self._id = call.request_id
        self._created = int(call.created_at.timestamp())
        self._model = call.client_model
        self._role = {"role": "assistant"}
        self._finish_reason: str | None = None

    def chunk(self, visible: Visible) -> bytes | None:
        """Text only; how it ended is said by the tail."""
        self._finish_reason = visible.finish_reason or self._finish_reason
        if not visible.text:
            return None
        return self._chunk(visible.text, None)

    def tail(self, finished: Finished) -> Iterable[bytes]:
        """A chunk without text that says why it ended, and the usage."""
        yield self._chunk("", self._finish_reason, usage=usage(finished.capture))
        yield DONE

    def answer(self, finished: Finished, seen: Sequence[Visible]) -> bytes:
        """The one choice."""
        (choice,) = finished.capture.choices
        message = {"role": "assistant", "content": choice.text, "tool_calls": None}
        entry = {"index": 0, "message": message, "finish_reason": choice.finish_reason}
        return dumps(self._head("chat.completion") | {"choices": [entry], "usage": usage(finished.capture)})

    def _chunk(self, text: str, finish_reason: str | None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": self._role | {"content": text}, "finish_reason": finish_reason}
        self._role = {}
        return dumps(self._head("chat.completion.chunk") | {"choices": [choice]} | more)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}
