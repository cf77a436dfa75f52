"""Stock Continue's dev data: `{"name", "schema", "level", "profileId", "data": {…}}`, schemas 0.1.0 and 0.2.0.

Only `autocomplete` events with a verdict and with code say something about a completion. All others are answered 204
and ignored, because the client may be configured to send them and can do nothing about an error.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, JsonValue, ValidationError

from services.ingest.protocols.common import (
    EXAMPLE_DISPLAY,
    Body,
    Caller,
    Display,
    FeedbackEvent,
    Name,
    evidence_of,
    of_display,
)
from shared.web.errors import from_validation

SOURCE = "continue"
EXAMPLE: dict[str, JsonValue] = {
    "name": "autocomplete",
    "schema": "0.2.0",
    "level": "all",
    "profileId": "local",
    "data": EXAMPLE_DISPLAY | {"accepted": True, "eventName": "autocomplete"},
}


class Ignored(StrEnum):
    """Why an event is taken and not stored."""

    OTHER_EVENT = "other_event"
    NO_VERDICT = "no_verdict"
    """Displayed, and nothing is known about it yet."""
    NO_CODE = "unjoinable"
    """`level: noCode`: without prompt and completion there is nothing to join by."""


class Envelope(Body):
    """What is around the data of every event."""

    name: Name
    level: str = "all"
    data: dict[str, Any]


class AutocompleteData(Display):
    """Data of an `autocomplete` event."""

    accepted: bool | None = None


class ContinueEvent(Envelope):
    """An `autocomplete` event as a whole; for the API documentation."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    data: AutocompleteData  # type: ignore[assignment]


def parse(body: dict[str, Any], caller: Caller) -> FeedbackEvent | Ignored:
    """The event in `body`, or why it is ignored. Raises a 422 that names the wrong field."""
    try:
        if body.get("name") != "autocomplete" or not _has_code(body.get("data")):
            ignored = _ignored(Envelope.model_validate(body))
            if ignored is not None:
                return ignored
        data = ContinueEvent.model_validate(body).data
    except ValidationError as error:
        raise from_validation(list(error.errors(include_input=False))) from None
    if data.accepted is None:
        return Ignored.NO_VERDICT
    return of_display(
        data, source=SOURCE, accepted=data.accepted, caller=caller, evidence=evidence_of(body, body["data"])
    )


def _has_code(data: object) -> bool:
    return isinstance(data, dict) and "prompt" in data


def _ignored(envelope: Envelope) -> Ignored | None:
    if envelope.name != "autocomplete":
        return Ignored.OTHER_EVENT
    return Ignored.NO_CODE if envelope.level == "noCode" and "prompt" not in envelope.data else None
