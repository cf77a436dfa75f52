"""Our own feedback API: what became of a completion that the gateway served, by its id, one event or up to 500.

    {"completion_id": "cmpl-…", "outcome": "accepted"}
    {"events": [{…}, {…}]}

A request is valid as a whole or refused as a whole. An event is known again by its `event_id`, else by the request's
`Idempotency-Key` and its place, else by what it says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo, field_validator

from services.ingest import told
from services.ingest.protocols.common import Body, Caller, FeedbackEvent, Name, Path, Text
from services.ingest.protocols.tabby import MAX_CHOICE, CompletionId
from services.ingest.secrets import redact
from shared.web.errors import ApiError, from_validation

SOURCE = "tabwise"
MAX_EVENTS = 500
MAX_TEXT_CHARS = 20_000
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")
DIGEST_CHARS = 32
FACTS = ("completion_id", "choice_index", "display_id", "outcome", "rating", "accepted_chars", "accepted_text",
         "final_text")  # fmt: skip
"""Two events that agree in these say the same."""

Outcome = Literal["shown", "accepted", "edited", "dismissed"]
EventId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,200}$")]
LanguageName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9+#._-]{0,39}$")]
SomeText = Annotated[Text, Field(max_length=MAX_TEXT_CHARS)]

EXAMPLES: list[JsonValue] = [
    {"completion_id": "cmpl-0f8f1d9f6f5e4f0e8f4c4b3a2d1c0b9a", "outcome": "accepted", "language": "python"},
    {
        "completion_id": "cmpl-0f8f1d9f6f5e4f0e8f4c4b3a2d1c0b9a",
        "choice_index": 0,
        "outcome": "edited",
        "final_text": "return first + second",
        "rating": 0.5,
        "elapsed_ms": 1840,
        "filepath": "src/sums.py",
        "event_id": "8e03978e-40d5-43e8-bc93-6894a57f9324",
    },
]


class Event(Body):
    """What became of one completion. `outcome`, `rating` or both."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": EXAMPLES})

    completion_id: CompletionId
    """The `id` of the completion as the gateway answered it."""
    choice_index: Annotated[int, Field(ge=0, le=MAX_CHOICE)] = 0
    """Which of its choices."""
    display_id: Name | None = None
    """Tells displays of the same completion apart, where you show it again."""
    event_id: EventId | None = None
    """Your id of this event. Sent again, it counts once and is answered alike."""
    rating: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | None = None
    """What the developer thinks of it: -1 (bad) to 1 (good)."""
    outcome: Annotated[Outcome | None, Field(validate_default=True)] = None
    """`shown`: it was displayed. `accepted`: taken over. `edited`: taken over and changed; `final_text` says how.
    `dismissed`: the developer refused it; nothing else is a dismissal."""
    final_text: Annotated[SomeText | None, Field(validate_default=True)] = None
    """What stands in its place now. With `edited`; also with `dismissed`, if you know what was typed instead."""
    accepted_text: Annotated[SomeText, Field(min_length=1)] | None = None
    """Of a partial accept: how the completion's text begins, as far as it was taken over."""
    accepted_chars: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The same as a number of characters (Unicode code points, not UTF-16 units)."""
    elapsed_ms: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    """Milliseconds from the display until then."""
    language: LanguageName | None = None
    """As the editor calls it; for the figures."""
    filepath: Path = ""
    """Tells the language where `language` is left out."""

    @field_validator("outcome")
    @classmethod
    def _says_something(cls, value: Outcome | None, info: ValidationInfo) -> Outcome | None:
        if value is None and info.data.get("rating", 0) is None:
            raise ValueError("give an outcome, a rating, or both")
        return value

    @field_validator("final_text")
    @classmethod
    def _final_text_fits(cls, value: str | None, info: ValidationInfo) -> str | None:
        outcome = info.data.get("outcome")
        if value is None and outcome == "edited":
            raise ValueError("`edited` needs the final text")
        if value is not None and outcome not in {"edited", "dismissed"} and "outcome" in info.data:
            raise ValueError("goes with `edited` or `dismissed` alone")
        return value

    @field_validator("accepted_text", "accepted_chars")
    @classmethod
    def _part_fits(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        if value is None or "outcome" not in info.data:
            return value
        if info.data["outcome"] not in {"accepted", "edited"}:
            raise ValueError("goes with `accepted` or `edited` alone")
        if info.field_name == "accepted_chars" and info.data.get("accepted_text") is not None:
            raise ValueError("give accepted_text or accepted_chars, not both")
        return value

    @property
    def partly(self) -> bool:
        """Whether a part alone may have been accepted."""
        return self.accepted_text is not None or self.accepted_chars is not None

    @property
    def shown_as(self) -> str:
        """What tells displays of one key apart; a completion id has no `/`."""
        return f"{self.completion_id}/{self.display_id}" if self.display_id else self.completion_id

    @property
    def generation_id(self) -> str:
        """As `Generation.generation_id` is made."""
        return f"{self.completion_id}-{self.choice_index}" if self.choice_index else self.completion_id


class Batch(Body):
    """Several events in one request, in the order in which they happened."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"events": EXAMPLES}]})

    events: Annotated[list[Event], Field(min_length=1, max_length=MAX_EVENTS)]


class EventAnswer(BaseModel):
    """The event is durable. The same event again is answered alike."""

    event_id: str
    """Yours, or one that was made from what the event says."""
    completion_id: str
    choice_index: int
    status: Literal["stored"] = "stored"


class BatchAnswer(BaseModel):
    """All events are durable; one result for each, in their order."""

    results: list[EventAnswer]


@dataclass(frozen=True, slots=True)
class Told:
    """One event, ready to be stored, and its answer."""

    event: FeedbackEvent
    answer: EventAnswer
    digest: str
    """Of what it says, or of the whole request where the request's key is its id."""
    keyed: bool
    """It has no id of its own but the request's key."""


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request."""

    told: list[Told]
    is_batch: bool

    def answer(self) -> EventAnswer | BatchAnswer:
        """The answer, once everything is stored."""
        return BatchAnswer(results=[one.answer for one in self.told]) if self.is_batch else self.told[0].answer

    def field(self, index: int, name: str) -> str:
        """How a field of the event is named in an error."""
        return f"events.{index}.{name}" if self.is_batch else name

    @classmethod
    def parse(cls, body: dict[str, Any], idempotency_key: str | None, caller: Caller) -> Self:
        """Raises a 422 that names the wrong field."""
        if idempotency_key is not None and not IDEMPOTENCY_KEY.fullmatch(idempotency_key):
            message = "Idempotency-Key: 1 to 200 visible ASCII characters"
            raise ApiError(422, "invalid_idempotency_key", message, param="Idempotency-Key")
        is_batch = "events" in body
        try:
            events = Batch.model_validate(body).events if is_batch else [Event.model_validate(body)]
        except ValidationError as error:
            raise from_validation(list(error.errors(include_input=False))) from None
        _check_ids(events)
        whole = _digest(*(_facts(event) for event in events))
        told_ = [_told(event, at, idempotency_key, whole, caller) for at, event in enumerate(events)]
        return cls(told_, is_batch)


def _told(event: Event, at: int, key: str | None, whole: str, caller: Caller) -> Told:
    facts, keyed = _facts(event), event.event_id is None and key is not None
    said = whole if keyed else _digest(facts)
    if event.event_id is not None:
        event_id, dedupe_key = event.event_id, _digest([caller.key_id, "id", event.event_id])
    elif key is not None:
        event_id, dedupe_key = f"{key}.{at}", _digest([caller.key_id, "request", key, at])
    else:
        dedupe_key = _digest([caller.key_id, facts])
        event_id = f"fb-{dedupe_key}"
    answer = EventAnswer(event_id=event_id, completion_id=event.completion_id, choice_index=event.choice_index)
    return Told(_event(event, f"{dedupe_key}:{SOURCE}", said, caller), answer, said, keyed)


def _event(event: Event, dedupe_key: str, digest: str, caller: Caller) -> FeedbackEvent:
    clean = (lambda text: text) if caller.keeps_secrets else _without_secrets
    final = None if event.final_text is None else clean(event.final_text)
    evidence = {
        told.DIGEST: digest,
        told.RATING: event.rating,
        told.FINAL_TEXT: final,
        told.ACCEPTED_CHARS: event.accepted_chars,
        told.LANGUAGE: event.language,
    }
    accepted: dict[str | None, bool | None] = {"accepted": True, "edited": True, "dismissed": False}
    return FeedbackEvent(
        source=SOURCE,
        project_id=caller.project_id,
        key_id=caller.key_id,
        client_completion_id=event.shown_as,
        dedupe_key=dedupe_key,
        accepted=accepted.get(event.outcome),
        kind="feedback",
        select_kind="chars" if event.partly else None,
        named_generation_id=event.generation_id,
        choice_index=event.choice_index,
        completion=clean(event.accepted_text or ""),
        filepath=event.filepath,
        display_ms=event.elapsed_ms,
        evidence={name: value for name, value in evidence.items() if value is not None},
    )


def _check_ids(events: Iterable[Event]) -> None:
    """Raises a 422 where two different events have the same id."""
    seen: dict[str, list[Any]] = {}
    for at, event in enumerate(events):
        if event.event_id is not None and seen.setdefault(event.event_id, _facts(event)) != _facts(event):
            field = f"events.{at}.event_id"
            raise ApiError(422, "invalid_body", f"{field}: an event before has this id and says otherwise", param=field)


def _facts(event: Event) -> list[Any]:
    return [getattr(event, name) for name in FACTS]


def _digest(*facts: list[Any]) -> str:
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()[:DIGEST_CHARS]


def _without_secrets(text: str) -> str:
    return redact(text).text
