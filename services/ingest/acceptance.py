"""Acceptance figures: how much of what was suggested was taken, and how sure that is. Pure.

A period is one of requests: what was asked for in it, and what became of that, whenever.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from pydantic import BaseModel

Dimension = Literal["project", "developer", "language", "version", "client", "time"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
Bucket = Literal["hour", "day"]
LONGEST = timedelta(days=366)
DEFAULT_SINCE = "7d"
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_Z_95 = 1.959963984540054
"""The standard normal distribution's 0.975 quantile."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the ledger counts in one group."""

    requested: int
    """Requests for a completion."""
    requests_shown: int
    """Of which at least one display is known."""
    shown: int
    accepted: int
    partially_accepted: int
    rejected: int
    rewards: float
    """Sum over the displays that have one."""
    rewarded: int
    accepted_chars: int


class AcceptanceGroup(BaseModel):
    """The figures of one group. A rate is None where nothing was counted."""

    group: dict[str, str | int]
    """The value of each dimension."""
    requested: int | None
    """Requests for a completion; None by language, which most requests do not tell."""
    share_shown: float | None
    """Share of the requests of which at least one display is known."""
    shown: int
    """Displays that a client told of, those without a verdict included."""
    accepted: int
    partially_accepted: int
    rejected: int
    """Dismissed, or a timer ran out."""
    undecided: int
    """Nothing but the display is known."""
    acceptance_rate: float | None
    """Share of the displays that were accepted, as a whole or in part."""
    rate_low: float | None
    """95 % interval of the rate (Wilson's)."""
    rate_high: float | None
    mean_reward: float | None
    """Over the displays whose reward is final."""
    accepted_chars: int
    """Characters that were accepted."""


class Acceptance(BaseModel):
    """Everything that was asked for."""

    since: datetime
    until: datetime
    group_by: list[Dimension]
    bucket: Bucket | None
    truncated: bool
    """There are more groups: ask for a shorter period, or for fewer dimensions."""
    groups: list[AcceptanceGroup]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for, checked."""

    group_by: tuple[Dimension, ...]
    since: datetime
    until: datetime
    bucket: Bucket | None = None
    project_id: str | None = None
    """Only this project."""
    key_id: str | None = None
    """Only this key."""


def wilson(successes: int, trials: int, z: float = _Z_95) -> tuple[float, float] | None:
    """The interval of a share; None of no trials.

    With p = successes / trials and n = trials:
    `(p + z²/2n ± z √(p (1 - p) / n + z²/4n²)) / (1 + z²/n)`. Wilson (1927), "Probable inference, the law of succession,
    and statistical inference", JASA 22:209-212; it holds its level for small n and rates near 0 and 1, where the
    usual `p ± z √(p (1 - p) / n)` does not (Brown, Cai, DasGupta 2001, Statistical Science 16:101-133, equation 4).
    """
    if trials == 0:
        return None
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def figures(group: Mapping[str, str | int], counts: Counts) -> AcceptanceGroup:
    """The figures of one group."""
    taken = counts.accepted + counts.partially_accepted
    interval = wilson(taken, counts.shown)
    known = "language" not in group
    return AcceptanceGroup(
        group=dict(group),
        requested=counts.requested if known else None,
        share_shown=counts.requests_shown / counts.requested if known and counts.requested else None,
        shown=counts.shown,
        accepted=counts.accepted,
        partially_accepted=counts.partially_accepted,
        rejected=counts.rejected,
        undecided=counts.shown - taken - counts.rejected,
        acceptance_rate=taken / counts.shown if counts.shown else None,
        rate_low=interval[0] if interval else None,
        rate_high=interval[1] if interval else None,
        mean_reward=counts.rewards / counts.rewarded if counts.rewarded else None,
        accepted_chars=counts.accepted_chars,
    )


def pseudonym(key_id: str) -> str:
    """What stands for a developer whose project does not allow names: the same for the same key, everywhere."""
    return f"developer-{hashlib.sha256(f'tabwise developer {key_id}'.encode()).hexdigest()[:8]}"


def dimensions_of(text: str, bucket: Bucket | None) -> tuple[Dimension, ...]:
    """`project,language` as dimensions; with a bucket also the time. Raises `ValueError`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [known for name in names for known in DIMENSIONS if known == name]
    if len(found) < len(names) or len(set(found)) < len(found):
        raise ValueError(f"must be some of {', '.join(DIMENSIONS)}, each once, separated by commas")
    if bucket is not None and "time" not in found:
        found.insert(0, "time")
    return tuple(found)


def moment(text: str, now: datetime) -> datetime:
    """`2026-11-01`, `2026-11-01T12:00:00Z` (no zone means UTC), or `12h`, `7d` ago. Raises `ValueError`."""
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date like 2026-11-01, or 90m, 12h or 7d for so long ago") from None


def period(since: str, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    """From when until when. Raises `ValueError`, with `since` or `until` at the beginning of its text."""
    begin, end = _named("since", since, now), now if until is None else _named("until", until, now)
    if not begin < end:
        raise ValueError("until: must be after since")
    if end - begin > LONGEST:
        raise ValueError(f"since: must be at most {LONGEST.days} days before until")
    return begin, end


def header(group_by: Sequence[str]) -> list[str]:
    """The columns of a table of groups."""
    return [*group_by, *(name for name in AcceptanceGroup.model_fields if name != "group")]


def cells(group: AcceptanceGroup, group_by: Sequence[str]) -> list[str | int | float | None]:
    """One row of that table."""
    values = group.model_dump(exclude={"group"})
    return [*(group.group[name] for name in group_by), *values.values()]


def counts_of(values: Mapping[str, int | float]) -> Counts:
    """From the columns of a query."""
    return Counts(**{field.name: values[field.name] for field in fields(Counts)})  # type: ignore[arg-type]


def _named(name: str, text: str, now: datetime) -> datetime:
    try:
        return moment(text, now)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
