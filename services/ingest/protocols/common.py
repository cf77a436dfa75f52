"""What all feedback formats have alike: strict JSON, text that PostgreSQL can hold, and the parsed event."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from services.ingest.outcomes import Part
from services.ingest.secrets import redact
from shared import fim
from shared.web.errors import ApiError

Kind = Literal["verdict", "view", "select", "dismiss", "feedback"]
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MAX_EVIDENCE_CHARS = 300
EVIDENCE_FIELDS = frozenset(
    {
        "uniqueId", "modelName", "modelProvider", "userId", "userAgent", "selectedProfileId", "profileId", "schema",
        "eventName", "level", "numLines", "maxPromptTokens", "debounceDelay", "multilineCompletions", "useCache",
        "useImports", "useRecentlyEdited", "transform",
    }
)  # fmt: skip
"""Client fields that are kept as evidence. Never prompt, prefix, suffix or `gitRepo` (its URL may hold a password)."""


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain the character U+0000")
    return text


def _moment(value: object) -> datetime:
    """An ISO 8601 string, or milliseconds since the epoch (older releases of Continue). No zone means UTC."""
    try:
        moment = _parsed(value)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError("must be an ISO 8601 string or a number of milliseconds") from None
    if not EARLIEST <= moment < LATEST:
        raise ValueError("must lie between 1970 and 2200")
    return moment


def _parsed(value: object) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, UTC)
    raise ValueError


Text = Annotated[str, AfterValidator(_without_nul)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_nul)]
Path = Annotated[str, Field(max_length=4096), AfterValidator(_without_nul)]
Moment = Annotated[datetime, BeforeValidator(_moment, json_schema_input_type=str | float)]
"""A client's clock."""


class Body(BaseModel):
    """Base of the request bodies: strict types, unknown fields allowed, no input in error messages."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Display(Body):
    """The fields that both formats of Continue share: one completion that was displayed."""

    completionId: Name
    prompt: Text
    completion: Text
    prefix: str | None = None
    suffix: str | None = None
    """Both are digested and thrown away."""
    filepath: Path
    timestamp: Moment | None = None
    time: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    cacheHit: bool = False


EXAMPLE_DISPLAY: dict[str, Any] = {
    "completionId": "5c3e2d6e-0c0b-4d1a-9a55-0d6f3f9a8e21",
    "prompt": "<|fim_prefix|>def add(a, b):\n    return <|fim_suffix|>\n<|fim_middle|>",
    "completion": "a + b",
    "prefix": "def add(a, b):\n    return ",
    "suffix": "\n",
    "filepath": "file:///home/dev/project/sums.py",
    "timestamp": "2026-11-20T12:00:00.000Z",
    "time": 412,
    "cacheHit": False,
    "modelName": "qwen2.5-coder-team",
}
"""For the API documentation."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends an event, and how the gateway would have written this caller's prompts."""

    key_id: str
    project_id: str
    fim_template: str = "qwen"
    keeps_secrets: bool = False
    """The project wants its secrets stored as they came."""


@dataclass(frozen=True, slots=True)
class FeedbackEvent:
    """One thing that a client says about one displayed completion, whatever format it came in.

    It is joined by the generation that the client names; where it names none, by the prompt's digest and the text.
    """

    source: str
    project_id: str
    key_id: str
    client_completion_id: str
    dedupe_key: str
    """What makes it the same fact when it is sent again."""
    accepted: bool | None
    """None: it was displayed, and that is all."""
    kind: Kind = "verdict"
    select_kind: Part | None = None
    named_generation_id: str | None = None
    choice_index: int = 0
    prompt_sha256: bytes | None = None
    rendered_sha256: bytes | None = None
    """Digest of the prompt that the gateway makes of the client's prefix and suffix."""
    completion: str = ""
    filepath: str = ""
    cache_hit: bool = False
    display_ms: float | None = None
    client_time: datetime | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What it says; a metric label."""
        if self.accepted is None:
            return "shown"
        if not self.accepted:
            return "rejected"
        return "accepted" if self.select_kind is None else "partially_accepted"


def of_display(
    display: Display, *, source: str, accepted: bool, caller: Caller, evidence: dict[str, Any]
) -> FeedbackEvent:
    """The event of a format that tells the prompt and the displayed text."""
    return FeedbackEvent(
        source=source,
        project_id=caller.project_id,
        key_id=caller.key_id,
        client_completion_id=display.completionId,
        dedupe_key=dedupe_key(caller.key_id, display.completionId, accepted),
        accepted=accepted,
        prompt_sha256=_digest(display.prompt),
        rendered_sha256=_rendered(display, caller.fim_template),
        completion=display.completion if caller.keeps_secrets else _without_secrets(display),
        filepath=display.filepath,
        cache_hit=display.cacheHit,
        display_ms=display.time,
        client_time=display.timestamp,
        evidence=evidence,
    )


def _without_secrets(display: Display) -> str:
    return redact(display.completion, before=display.prefix or "", after=display.suffix or "").text


def _rendered(display: Display, fim_template: str) -> bytes | None:
    if display.prefix is None or display.suffix is None:
        return None
    return _digest(fim.render(fim_template, display.prefix, display.suffix or fim.NO_SUFFIX))


def _digest(prompt: str) -> bytes:
    return hashlib.sha256(prompt.encode()).digest()


def dedupe_key(key_id: str, client_completion_id: str, accepted: bool) -> str:
    """Same key, completion id and verdict: the same fact, however often and in whatever format it is sent.

    A late accept differs from the timer's reject of the same completion in the verdict: both are kept.
    """
    digest = hashlib.sha256(f"{key_id}\n{client_completion_id}".encode()).hexdigest()
    return f"{digest}:{'accepted' if accepted else 'rejected'}"


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises a 400 for anything else, NaN, infinity and lone surrogates included."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ApiError(400, "invalid_json", "the body is not valid JSON (NaN and Infinity are not JSON)") from None
    if not isinstance(value, dict):
        raise ApiError(400, "invalid_json", "the body must be a JSON object")
    return value


def evidence_of(*objects: Mapping[str, Any]) -> dict[str, Any]:
    """The scalar fields worth keeping, short ones alone, and without characters that PostgreSQL refuses."""
    return {
        name: value
        for fields in objects
        for name, value in fields.items()
        if name in EVIDENCE_FIELDS and _storable(value)
    }


def _storable(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_EVIDENCE_CHARS and "\x00" not in value
    return isinstance(value, bool | int | float)
