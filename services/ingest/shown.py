"""Shown is not generated: where the displayed text lies in what was sampled, and which tokens stand behind it. Pure.

Continue cuts the text at lines, at the suffix and at stop tokens, strips a doubled leading space and trailing blanks,
and drops leading `Path:` lines. All of these leave a contiguous piece of the sampled text; anything else did not come
from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from services.ingest.outcomes import Part

_FIRST_LINE = re.compile(r"\s*[^\n]+")
_FIRST_WORD = re.compile(r"\s*(?:\w+|[^\w\s]+)")


class Fit(IntEnum):
    """How the displayed text lies in the generated one; lower is better."""

    PREFIX = 0
    """It is how the generated text begins."""
    TRIMMED = 1
    """The same, after leading blanks that the editor stripped."""
    LATER = 2
    """It begins later: the developer typed the beginning, or the editor dropped lines before it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of the generated text were displayed."""

    fit: Fit
    start: int
    end: int


class Sampled(Protocol):
    """What is needed of a generation to find the displayed tokens. T = number of sampled tokens."""

    @property
    def text(self) -> str:
        """Decoded text, without the stop."""

    @property
    def token_ids(self) -> list[int]:
        """T sampled tokens, the end token included."""

    @property
    def text_offsets(self) -> list[int]:
        """Characters of text before each of the T tokens."""

    @property
    def finish_reason(self) -> str:
        """`stop`, `length`, `abort` or `error`."""

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it; None where an end token did (or nothing)."""


def locate(text: str, shown: str) -> Span | None:
    """Where `shown` lies in `text`, or None where it cannot have come from it."""
    shown = shown.replace("\r\n", "\n") if "\r" not in text else shown
    if not shown.strip():
        return None
    if text.startswith(shown):
        return Span(Fit.PREFIX, 0, len(shown))
    start = text.find(shown)
    if start < 0:
        return None
    if not text[:start].strip():
        return Span(Fit.TRIMMED, start, start + len(shown))
    if text.find(shown, start + 1) >= 0:
        return None  # which of the places it was cannot be told
    return Span(Fit.LATER, start, start + len(shown))


def credited_tokens(generation: Sampled, span: Span) -> int:
    """Number of leading tokens that stand behind the displayed characters, those that were typed ahead included.

    A token on the edge counts if what it has beyond the edge is only white space. The end token counts where the
    whole text was displayed (up to trailing white space) and the model itself ended there. 0 where lines before the
    displayed text were dropped.
    """
    if span.fit is Fit.LATER and "\n" in generation.text[: span.start]:
        return 0
    if _whole_was_shown(generation, span):
        return len(generation.text_offsets)
    return _tokens_before(generation, span.end)


def first_part(text: str, part: Part) -> str:
    """What an editor takes over of `text` on accepting one line or one word of it, blank lines before it included."""
    found = (_FIRST_LINE if part == "line" else _FIRST_WORD).match(text)
    return found.group().rstrip() if found else ""


def credited_tokens_of_part(generation: Sampled, part_text: str) -> int:
    """Number of leading tokens that stand behind the accepted part. Never the end token: nothing accepted the end."""
    return _tokens_before(generation, len(part_text))


def _tokens_before(generation: Sampled, end: int) -> int:
    """Leading tokens of which nothing but white space lies at or after `end`."""
    offsets = generation.text_offsets
    inside = sum(1 for offset in offsets if offset < end)
    if inside and generation.text[end : _end_of(generation, inside - 1)].strip():
        return inside - 1
    return inside


def _whole_was_shown(generation: Sampled, span: Span) -> bool:
    if generation.finish_reason != "stop" or generation.text[span.end :].strip():
        return False
    stop = generation.stop_string
    return stop is None or not stop.strip() or stop.startswith("<|")


def _end_of(generation: Sampled, token: int) -> int:
    offsets = generation.text_offsets
    return offsets[token + 1] if token + 1 < len(offsets) else len(generation.text)
