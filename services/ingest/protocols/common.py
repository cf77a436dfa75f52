"""What all feedback formats have alike: strict JSON, text that PostgreSQL can hold, and the parsed event."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from shared.web.errors import ApiError

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
    filepath: Path
    timestamp: Moment | None = None
    time: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    cacheHit: bool = False


@dataclass(frozen=True, slots=True)
class FeedbackEvent:
    """One accept or reject of one displayed completion, whatever format it came in."""

    source: str
    project_id: str
    key_id: str
    client_completion_id: str
    accepted: bool
    prompt: str
    completion: str
    filepath: str
    cache_hit: bool
    display_ms: float | None
    client_time: datetime | None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_sha256(self) -> bytes:
        """What the event is joined by."""
        return hashlib.sha256(self.prompt.encode()).digest()

    @property
    def dedupe_key(self) -> str:
        """What makes it the same fact when it is sent again."""
        return dedupe_key(self.key_id, self.client_completion_id, self.accepted)


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
    kept: dict[str, Any] = {}
    for fields in objects:
        kept.update({name: fields[name] for name in EVIDENCE_FIELDS & fields.keys() if _storable(fields[name])})
    return kept


def _storable(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_EVIDENCE_CHARS and "\x00" not in value
    return isinstance(value, bool | int | float)
