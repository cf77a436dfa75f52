"""Everything that is known about one display of a completion, from which any reward can be derived. Pure.

Evidence is kept, a reward is derived from it (`rewards.py`): a reward that changes can be computed again over history
(`replay.py`). A field is None where nothing is known, which is not the same as "no": no reward may be made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rapidfuzz.distance import Levenshtein

from services.ingest.outcomes import Part, Verdict

RETENTION_AFTER_S = (30, 120, 600)
"""When after an accept it is looked how much of the text is still there: 30 s, 2 min, 10 min."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one display. Shares are 0 to 1."""

    verdict: Verdict
    """The best word of the client: `shown` where it said no more, so that nothing is decided."""
    part: Part | None = None
    """Only this much was accepted; None: all of it, or nothing."""
    explicit: bool | None = None
    """Of a reject. True: the person dismissed it. False: a timer or the editor did. None: the client does not say."""
    shown_chars: int | None = None
    """`visible_chars` of what was displayed (of a partial accept: of that part); 0: silence."""
    retention: Mapping[int, float] = field(default_factory=dict)
    """Seconds after the accept → share of the accepted text that was still there. Only what was seen."""
    reversed_: bool | None = None
    """Accepted, and soon removed again."""
    typed_out: bool | None = None
    """Rejected, and then typed by hand as suggested."""
    settled: bool | None = None
    """Whether it is known what was written in the place in the end."""
    edited: float | None = None
    """Similarity of the developer's final text to the suggestion, where a client reported the final text."""
    rating: float | None = None
    """What the developer thinks of it: -1 (bad) to 1 (good)."""
    superseded: bool | None = None
    """Another display took its place before anything was decided: what became of that says more."""

    def __post_init__(self) -> None:
        """Raises `ValueError` where a figure cannot be."""
        for name, value, lowest in (("edited", self.edited, 0.0), ("rating", self.rating, -1.0)):
            _check(name, value, lowest)
        for after_s, share in self.retention.items():
            _check(f"retention[{after_s}]", share, 0.0)
        if self.shown_chars is not None and self.shown_chars < 0:
            raise ValueError("shown_chars must not be negative")


def visible_chars(shown_text: str) -> int:
    """`shown_chars` of a displayed text: without the white space around it."""
    return len(shown_text.strip())


def similarity(final_text: str, shown_text: str) -> float:
    """`edited` of a final text: compared as siblings are: 1 - Levenshtein distance / longer length."""
    return Levenshtein.normalized_similarity(final_text.strip(), shown_text.strip())


def _check(name: str, value: float | None, lowest: float) -> None:
    if value is not None and not (math.isfinite(value) and lowest <= value <= 1.0):
        raise ValueError(f"{name} must lie between {lowest:g} and 1")
