"""What the protocols share: reading a body, fields with the same limits, and the shape of a writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

import orjson
from pydantic import BaseModel, Field, ValidationError

from services.gateway.call import Call, Origin
from services.gateway.capture import Capture, Visible
from services.gateway.settings import GatewaySettings
from shared.fim import stop_strings
from shared.web.errors import ApiError, from_validation

MAX_STOP = 64
"""As many as `services.engine` lets vLLM take."""
MAX_CHOICES = 16

Finite = Annotated[float, Field(allow_inf_nan=False)]
StopString = Annotated[str, Field(min_length=1, max_length=1000)]
Stop = StopString | Annotated[list[StopString], Field(max_length=MAX_STOP)] | None
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Finished:
    """A completion at its end. Seconds are from the request's arrival."""

    capture: Capture
    first_token_s: float | None
    total_s: float


class Writer(Protocol):
    """A protocol's way of saying what was sampled."""

    def chunk(self, visible: Visible) -> bytes | None:
        """The payload of one streamed event; None where the client would learn nothing from it."""

    def tail(self, finished: Finished) -> Iterable[bytes]:
        """The payloads that end a stream."""

    def answer(self, finished: Finished, seen: Sequence[Visible]) -> bytes:
        """The whole, unstreamed answer. `seen`: all parts in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What a request asks for, and how it is answered."""

    call: Call
    writer: Writer


Begin = Callable[[bytes, Origin, GatewaySettings], "Begun | bytes"]
"""Raises `ApiError`. Bytes: the answer, where the engine has nothing to do with it."""


def read(model: type[Model], body: bytes) -> Model:
    """The request in `body`. Raises `ApiError` (422) that names the field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(
            list(error.errors(include_url=False, include_input=False, include_context=False))
        ) from None


def unsupported(param: str, message: str) -> ApiError:
    """400: understood, but it cannot be honoured."""
    return ApiError(400, "unsupported_parameter", message, param=param)


def as_list(stop: Stop) -> list[str]:
    """`stop` as a list."""
    return [stop] if isinstance(stop, str) else stop or []


def with_family_stops(stop: Sequence[str], family: str) -> list[str]:
    """The client's stop strings and those of a prompt that the gateway writes. Raises 400 where they are too many."""
    both = list(dict.fromkeys([*stop, *stop_strings(family)]))
    if len(both) > MAX_STOP:
        raise unsupported("stop", f"`stop` has too many texts: with the model's own they may be {MAX_STOP}")
    return both


def usage(capture: Capture) -> dict[str, int]:
    """Tokens of the prompt and of all choices."""
    prompt, sampled = len(capture.prompt_token_ids), capture.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def bending(request: BaseModel, neutral: dict[str, float]) -> dict[str, Any]:
    """Those of the named fields that really bend the distribution: SDKs like to send neutral values."""
    given = {name: getattr(request, name) for name in neutral}
    return {name: value for name, value in given.items() if value is not None and value != neutral[name]}


def dumps(value: Any) -> bytes:
    """As JSON."""
    return orjson.dumps(value)
