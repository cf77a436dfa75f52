"""What later requests show of earlier places: the settling loop's pure centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from rapidfuzz import fuzz

from services.ingest.places import View
from services.ingest.settled import retained, settled_between
from services.ingest.shown import Fit, locate
from shared import fim


@dataclass(frozen=True)
class Request:
    """A later request of the same key."""

    at: datetime
    prompt: str

    @cached_property
    def view(self) -> View | None:
        """Its window; None where it is of no known template."""
        return _view(self.prompt)


@dataclass(frozen=True)
class Spot:
    """A generation and the place that it was made for."""

    generation_id: str
    key_id: str
    created_at: datetime
    prompt: str
    text: str

    @cached_property
    def view(self) -> View | None:
        """The window around its cursor."""
        return _view(self.prompt)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A display that was accepted."""

    spot: Spot
    outcome_id: str
    shown_text: str
    at: datetime

    @property
    def text(self) -> str:
        """What stands at the prompt's cursor since: what was typed ahead of the display belongs to it."""
        span = locate(self.spot.text, self.shown_text)
        return self.spot.text[: span.end] if span and span.fit is Fit.LATER else self.shown_text


@dataclass(frozen=True, slots=True)
class Seen:
    """What one request shows of one place."""

    at: datetime
    value: float
    text: str = ""


def look_for_settled(spots: Sequence[Spot], later: Sequence[Request], within: timedelta) -> dict[str, Seen]:
    """By generation what was written in its place: the first request that shows it finished."""
    found: dict[str, Seen] = {}
    answers: dict[tuple[str, datetime], tuple[datetime, str] | None] = {}  # choices of one request share their place
    for spot in spots:
        place = (spot.prompt, spot.created_at)
        if place not in answers:
            answers[place] = _first_settled(spot, later, within)
        answer = answers[place]
        if answer is not None:
            at, text = answer
            found[spot.generation_id] = Seen(at, similarity(spot.text, text), text)
    return found


def look_for_retention(accepts: Sequence[Accepted], later: Sequence[Request], within: timedelta) -> dict[str, Seen]:
    """By outcome how much of the accepted text is left: the last request up to that age that shows it."""
    found = {}
    for accept in accepts:
        for request in reversed(_between(later, accept.at, accept.at + within)):
            share = _retained(accept, request)
            if share is not None:
                found[accept.outcome_id] = Seen(request.at, share)
                break
    return found


def similarity(text: str, settled: str) -> float:
    """Of the first lines, 0 to 1; white space around them does not count."""
    first, other = (one.strip().split("\n")[0].strip() for one in (text, settled))
    return fuzz.ratio(first, other) / 100.0


def _first_settled(spot: Spot, later: Sequence[Request], within: timedelta) -> tuple[datetime, str] | None:
    if spot.view is None or spot.view.anchor is None:
        return None
    for request in _between(later, spot.created_at, spot.created_at + within):
        settled = settled_between(spot.view, request.view) if request.view else None
        if settled is not None:
            return request.at, settled.block
    return None


def _retained(accept: Accepted, request: Request) -> float | None:
    if accept.spot.view is None or request.view is None:
        return None
    return retained(accept.text, accept.spot.view, request.view)


def _between(requests: Sequence[Request], after: datetime, until: datetime) -> list[Request]:
    return [request for request in requests if after < request.at <= until]


def _view(prompt: str) -> View | None:
    parsed = fim.parse(prompt)
    return View.of(parsed) if parsed else None
