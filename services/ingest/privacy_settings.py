"""Settings of what is kept, for how long, and of whom nothing is learned. Part of `IngestSettings`."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from services.ingest.patterns import Limits
from shared.kit.settings import ServiceSettings

ALL_PROJECTS = "*"
MAX_DAYS = 100_000


def parsed_object(value: str) -> Any:
    """Of JSON; None where it is none."""
    try:
        return orjson.loads(value or "{}")
    except orjson.JSONDecodeError:
        return None


class PrivacySettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    keep_secrets_of: str = ""
    """Projects whose secrets are stored as they came, separated by commas; `*`: all. Nobody's, unless named here."""

    run_retention: bool = True
    retention_days: float = Field(default=90.0, ge=0, lt=MAX_DAYS)
    """Generations and all that refers to them are deleted when they are as old; 0: never."""
    project_retention: Annotated[dict[str, float], NoDecode] = Field(default_factory=dict)
    """What differs in single projects: `{"team-a": 30}`."""
    retention_batch_size: int = Field(default=500, ge=1)
    """Generations that one transaction deletes."""

    quarantine_window_s: float = Field(default=3600.0, gt=0)
    """How far back the guard looks at what a key did."""
    quarantine_every_s: float = Field(default=10.0, gt=0)
    quarantine_min_displays: int = Field(default=50, ge=1)
    """A key with fewer displays in the window is not judged by its share of fast accepts."""
    quarantine_fast_share: float = Field(default=0.95, gt=0, le=1)
    """Quarantined where at least this share of all displays was accepted within `quarantine_fast_ms`."""
    quarantine_fast_ms: float = Field(default=50.0, ge=0)
    quarantine_accepts_per_s: float = Field(default=10.0, gt=0)
    """Quarantined where more are accepted over a whole minute. Of one key: a team that shares one needs more."""
    quarantine_early_accepts: int = Field(default=10, ge=1)
    """Quarantined where as many came before the generation's end."""

    @field_validator("project_retention", mode="before")
    @classmethod
    def _days(cls, value: Any) -> Any:
        value = parsed_object(value) if isinstance(value, str) else value
        days = value.values() if isinstance(value, dict) else [None]
        if not all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < MAX_DAYS for one in days):
            raise ValueError('must be JSON like {"team-a": 30}: days, 0 for ever')
        return value

    @property
    def quarantine_limits(self) -> Limits:
        """What is impossible."""
        return Limits(
            min_displays=self.quarantine_min_displays,
            fast_share=self.quarantine_fast_share,
            fast_ms=self.quarantine_fast_ms,
            max_accepts_per_s=self.quarantine_accepts_per_s,
            min_early=self.quarantine_early_accepts,
        )

    def keeps_secrets_of(self, project_id: str) -> bool:
        """Whether this project's secrets are stored as they came."""
        named = {name.strip() for name in self.keep_secrets_of.split(",")} - {""}
        return project_id in named or ALL_PROJECTS in named
