"""Whether anybody could have worked as a key's events say. Pure.

In: counts of one key's latest displays. Out: the rule that they break, or None. What counts is the server's own clock:
from the end of the generation to the arrival of the first event about its display. A reaction below
`fast_ms` is no person's, and one before the end is about a text that was not there yet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Rule = Literal["too_fast", "too_many", "before_the_end", "by_hand"]
"""`by_hand`: an operator's decision."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is impossible."""

    min_displays: int = 50
    """Fewer tell nothing of `too_fast`."""
    fast_share: float = 0.95
    """Of all displays, accepted within `fast_ms`."""
    fast_ms: float = 50.0
    max_accepts_per_s: float = 10.0
    """Of one key, over any whole minute."""
    min_early: int = 10
    """Accepts that came before the generation's end."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one key did within the window."""

    key_id: str
    displays: int
    """All with a verdict, and those only shown."""
    accepted: int
    fast: int
    """Accepted within `Limits.fast_ms` of the generation's end, or of being shown by the client's own account."""
    early: int
    """Accepted before the generation's end, by more than the clocks may differ."""
    most_per_minute: int
    """Accepts in the busiest minute."""


def broken_rule(pattern: Pattern, limits: Limits) -> Rule | None:
    """The rule that this breaks; None where a person, or a team that shares a key, could have done it."""
    if pattern.early >= limits.min_early:
        return "before_the_end"
    if pattern.displays >= limits.min_displays and pattern.fast >= limits.fast_share * pattern.displays:
        return "too_fast"
    if pattern.most_per_minute > 60 * limits.max_accepts_per_s:
        return "too_many"
    return None


def evidence(pattern: Pattern, limits: Limits) -> dict[str, float]:
    """The figures and what they were held against, for the operator. No code."""
    figures = {name: value for name, value in asdict(pattern).items() if name != "key_id"}
    return figures | {f"limit_{name}": value for name, value in asdict(limits).items()}
