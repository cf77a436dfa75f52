"""RLinf's modified Continue: the same display, flat, and always with a verdict."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from services.ingest.protocols.common import EXAMPLE_DISPLAY, Caller, Display, FeedbackEvent, evidence_of, of_display
from shared.web.errors import from_validation

SOURCE = "rlinf"
EXAMPLE = EXAMPLE_DISPLAY | {"accepted": True, "modelProvider": "openai", "uniqueId": "dev-1", "numLines": 1}


class RlinfEvent(Display):
    """Body of `POST /api/training/submit`."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    accepted: bool


class RlinfAnswer(BaseModel):
    """Answer of `POST /api/training/submit`; the client looks at `status` alone."""

    status: Literal["submitted"] = "submitted"
    message: str
    queue_position: int = 0


def parse(body: dict[str, Any], caller: Caller) -> FeedbackEvent:
    """The event in `body`. Raises a 422 that names the wrong field."""
    try:
        data = RlinfEvent.model_validate(body)
    except ValidationError as error:
        raise from_validation(list(error.errors(include_input=False))) from None
    return of_display(data, source=SOURCE, accepted=data.accepted, caller=caller, evidence=evidence_of(body))
