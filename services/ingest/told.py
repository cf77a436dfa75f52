"""What a client of our own API says about a completion besides its verdict, as the ledger keeps it. Pure.

A part of a completion is told by its text or by its length; which one it is can be said only once the generation is
known. So the joiner measures it, and writes it into the event.
"""

from __future__ import annotations

from typing import Final

from services.ingest.joining import TEXT_DIFFERS, Joined, Match, Unmatched
from services.ingest.shown import Fit, first_part, locate
from shared.db.models import FeedbackEventRow

ACCEPTED_CHARS: Final = "accepted_chars"
FINAL_TEXT: Final = "final_text"
LANGUAGE: Final = "language"
RATING: Final = "rating"
DIGEST: Final = "digest"
"""Of what an event with an id of its own says, so that another event under the same id is noticed."""


def measure_part(event: FeedbackEventRow, match: Match) -> Match:
    """The same match, after the accepted part was measured on the generation; unmatched if it is none of it."""
    if event.select_kind != "chars" or not isinstance(match, Joined):
        return match
    text = match.candidate.text
    chars = _chars_of(event, text)
    if chars is None:
        return Unmatched(TEXT_DIFFERS)
    if not text[chars:].strip():
        event.select_kind = None
    elif text[:chars].rstrip() == first_part(text, "line"):
        event.select_kind = "line"
    event.evidence = event.evidence | {ACCEPTED_CHARS: chars}
    return match


def accepted_chars(event: FeedbackEventRow) -> int:
    """How many of the completion's first characters were accepted; 0 where that is not known."""
    chars = event.evidence.get(ACCEPTED_CHARS)
    return chars if isinstance(chars, int) else 0


def final_text(event: FeedbackEventRow) -> str | None:
    """What stands in the place of the completion in the end; None where the event does not say."""
    text = event.evidence.get(FINAL_TEXT)
    return text if isinstance(text, str) else None


def named_language(event: FeedbackEventRow) -> str | None:
    """The language as the client calls it."""
    name = event.evidence.get(LANGUAGE)
    return name if isinstance(name, str) else None


def _chars_of(event: FeedbackEventRow, text: str) -> int | None:
    if not event.completion:
        return min(accepted_chars(event), len(text))
    span = locate(text, event.completion)
    return span.end if span is not None and span.fit is not Fit.LATER else None
