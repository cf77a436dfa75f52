"""Compares two rewards over the same displays. Pure: sums that can be added up, stored and gone on with.

`before` is the reward that a display has (or another reward's), `after` the one that is tried.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

SAME = 1e-9
"""Rewards that differ by less are the same."""


@dataclass(slots=True)
class Figures:
    """Of some displays. All are sums."""

    count: int = 0
    """Displays with both rewards."""
    undecided: int = 0
    """Displays that the reward tried says nothing about, or that had none."""
    changed: int = 0
    sign_flips: int = 0
    """From a good word to a bad one, or the other way."""
    before: float = 0.0
    after: float = 0.0
    before_squared: float = 0.0
    after_squared: float = 0.0
    product: float = 0.0

    def add(self, before: float | None, after: float | None) -> None:
        """One more display."""
        if before is None or after is None:
            self.undecided += 1
            return
        self.count += 1
        self.changed += abs(after - before) > SAME
        self.sign_flips += before * after < 0
        self.before += before
        self.after += after
        self.before_squared += before * before
        self.after_squared += after * after
        self.product += before * after

    def __add__(self, other: Figures) -> Figures:
        mine, theirs = asdict(self), asdict(other)
        return Figures(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def mean_before(self) -> float | None:
        """None of nothing."""
        return self.before / self.count if self.count else None

    @property
    def mean_after(self) -> float | None:
        """None of nothing."""
        return self.after / self.count if self.count else None

    @property
    def correlation(self) -> float | None:
        """Pearson's; None where one of the two never changes."""
        spread_before = self.count * self.before_squared - self.before**2
        spread_after = self.count * self.after_squared - self.after**2
        if min(spread_before, spread_after) <= SAME * max(self.count, 1) ** 2:
            return None
        together = self.count * self.product - self.before * self.after
        return max(-1.0, min(1.0, together / math.sqrt(spread_before * spread_after)))


@dataclass(slots=True)
class Comparison:
    """Figures by policy version, and what was done."""

    versions: dict[int, Figures] = field(default_factory=dict)
    stored: int = 0
    handed_over: int = 0

    def add(self, version: int, before: float | None, after: float | None) -> None:
        """One more display, sampled by this version."""
        self.versions.setdefault(version, Figures()).add(before, after)

    @property
    def total(self) -> Figures:
        """Of all versions."""
        return sum(self.versions.values(), Figures())

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        versions = {str(version): asdict(figures) for version, figures in self.versions.items()}
        return {"versions": versions, "stored": self.stored, "handed_over": self.handed_over}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """To go on with what was counted before."""
        versions = {int(version): Figures(**figures) for version, figures in stored["versions"].items()}
        return cls(versions, stored["stored"], stored["handed_over"])
