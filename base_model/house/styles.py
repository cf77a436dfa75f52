"""Idiom points and the tastes of teams.

A point is a place where the house codebase has several ways to say the same thing; the ways themselves stand in
``idioms.py``, in the order that the indices here refer to.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

POINTS: Mapping[str, int] = {
    "key": 3,
    "one": 3,
    "none": 3,
    "fetch": 3,
    "missing": 4,
    "has": 3,
    "clash": 4,
    "store": 3,
    "remove": 3,
    "event": 4,
    "fact": 3,
    "record": 3,
    "many": 4,
    "each": 3,
    "scan": 3,
    "filter": 3,
    "order": 3,
    "sorting": 2,
    "first": 3,
    "sum": 3,
    "optional": 3,
    "listing": 3,
    "low": 4,
    "blank": 4,
    "invalid": 4,
    "status": 4,
    "state": 4,
    "change": 3,
    "now": 4,
    "label": 4,
    "dump": 3,
    "member": 3,
    "age": 3,
    "repo": 3,
    "save": 3,
}
"""Each idiom point and how many ways it has."""


@dataclass(frozen=True, slots=True)
class Style:
    """One team's taste: for every point the index of the way it always writes."""

    name: str
    ways: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.ways.keys() != POINTS.keys() or any(not 0 <= w < POINTS[p] for p, w in self.ways.items()):
            raise ValueError(f"style {self.name!r} must name a way for every point of POINTS")

    @classmethod
    def random(cls, seed: int, name: str | None = None) -> "Style":
        """The taste drawn from ``seed``: every way equally likely at every point."""
        rng = random.Random(f"style-{seed}")
        return cls(name or f"random-{seed}", {point: rng.randrange(ways) for point, ways in POINTS.items()})


HARBOR = Style.random(7, "harbor")
"""The default team of the demo and of the simulated developers."""

MERIDIAN = Style.random(11, "meridian")
"""A second team, for showing that two teams learn apart."""

STYLES: Mapping[str, Style] = {style.name: style for style in (HARBOR, MERIDIAN)}


def style_named(name: str) -> Style | None:
    """``mixed`` is no style (every occurrence draws its own way); ``random-N`` is ``Style.random(N)``."""
    if name == "mixed":
        return None
    if name.startswith("random-"):
        return Style.random(int(name.removeprefix("random-")))
    if name not in STYLES:
        raise KeyError(f"no style {name!r}; add it to STYLES beside {sorted(STYLES)}")
    return STYLES[name]
