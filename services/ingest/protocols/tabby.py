"""Tabby's plugins: `{"type": "view"|"select"|"dismiss", "completion_id", "choice_index", "view_id", "elapsed"}`.

`completion_id` is ours, so the event names the exact choice; the query or the body may say `select_kind=line`. A
display is a completion and a `view_id`: the agent shows a completion again from its cache, under a new `view_id`.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from services.ingest.outcomes import Part
from services.ingest.protocols.common import Body, Caller, FeedbackEvent, Kind, Name
from shared.web.errors import ApiError, from_validation

SOURCE = "tabby"
MAX_CHOICE = 1023
EXAMPLE: dict[str, Any] = {
    "type": "select",
    "completion_id": "cmpl-0f8f1d9f6f5e4f0e8f4c4b3a2d1c0b9a",
    "choice_index": 0,
    "view_id": "view-1",
    "elapsed": 1200,
}

CompletionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,200}$")]


class Ignored(StrEnum):
    """Why an event is taken and not stored."""

    OTHER_EVENT = "other_event"


class Envelope(Body):
    """What every event has."""

    type: Name


class TabbyEvent(Body):
    """Body of `POST /v1/events/tabby`."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    type: Literal["view", "select", "dismiss"]
    completion_id: CompletionId
    choice_index: Annotated[int, Field(ge=0, le=MAX_CHOICE)]
    view_id: Name | None = None
    elapsed: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    """Milliseconds since it was displayed."""
    select_kind: Part | None = None

    @property
    def display_id(self) -> str:
        """What tells displays of one key apart; a completion id has no `/`."""
        return f"{self.completion_id}/{self.view_id}" if self.view_id else self.completion_id

    @property
    def generation_id(self) -> str:
        """As `Generation.generation_id` is made."""
        return f"{self.completion_id}-{self.choice_index}" if self.choice_index else self.completion_id


def parse(body: dict[str, Any], select_kind: str | None, caller: Caller) -> FeedbackEvent | Ignored:
    """The event in `body` with the query's `select_kind`, or why it is ignored. Raises a 422 that names the field."""
    try:
        if Envelope.model_validate(body).type not in {"view", "select", "dismiss"}:
            return Ignored.OTHER_EVENT
        event = TabbyEvent.model_validate(body if select_kind is None else body | {"select_kind": select_kind})
    except ValidationError as error:
        raise from_validation(list(error.errors(include_input=False))) from None
    if select_kind is not None and body.get("select_kind") not in (None, select_kind):
        raise ApiError(422, "invalid_body", "select_kind: the query and the body differ", param="select_kind")
    return _event(event, event.type, event.select_kind if event.type == "select" else None, caller)


def _event(event: TabbyEvent, kind: Kind, part: Part | None, caller: Caller) -> FeedbackEvent:
    return FeedbackEvent(
        source=SOURCE,
        project_id=caller.project_id,
        key_id=caller.key_id,
        client_completion_id=event.display_id,
        dedupe_key=_dedupe_key(caller.key_id, event, part),
        accepted={"view": None, "select": True, "dismiss": False}[event.type],
        kind=kind,
        select_kind=part,
        named_generation_id=event.generation_id,
        choice_index=event.choice_index,
        display_ms=event.elapsed,
    )


def _dedupe_key(key_id: str, event: TabbyEvent, part: Part | None) -> str:
    """Same key, display, choice, type and part: the same fact, whenever and however often it is sent."""
    facts = [key_id, event.completion_id, event.choice_index, event.view_id]
    verdict = f"{event.type}:{part}" if part else event.type
    return f"{hashlib.sha256(orjson.dumps(facts)).hexdigest()}:{SOURCE}:{verdict}"
