"""What becomes of one display as events about it arrive. Pure.

The best word that any event has said about a choice counts, in whatever order and however often events come:

    best word so far            | state              | final
    ----------------------------|--------------------|--------------------------------------
    accepted                    | accepted           | at once
    accepted, a part of it      | accepted, in part  | the window after the first such event
    rejected                    | rejected           | the window after the first such event
    shown                       | shown              | never: a missing event is no reject

Once final, a better word changes the state alone ("too late"): the reward stays, nothing is trained again.

Most clients speak of one choice. Tabby's plugins name the choice only as they accept it; as they dismiss it they name
choice 0, whichever was displayed. So a display of which some choice is accepted does not reject choice 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

Verdict = Literal["shown", "rejected", "accepted"]
Part = Literal["line", "word", "chars"]
"""How much of a completion was accepted: its first line, its first word, or so many of its first characters."""
SETTLED = "settled"
"""The state of an outcome that no event has made: what was suggested was written there (`silent.py`)."""
UNNAMED_CHOICE = 0
"""What clients send that do not know which choice was displayed."""


class Change(StrEnum):
    """What an event did to an outcome; a metric label."""

    OPENED = "opened"
    DECIDED = "decided"
    """It had been shown, and now there is a verdict."""
    OVERRULED = "overruled"
    TOO_LATE = "too_late"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Word:
    """What one event says about one choice of a display."""

    verdict: Verdict
    received_at: datetime
    choice: int = UNNAMED_CHOICE
    part: Part | None = None
    """How much was accepted; None: all of it."""
    chars: int = 0
    """Of the part `chars`: how many."""


@dataclass(frozen=True, slots=True)
class State:
    """The part of an outcome that events change."""

    verdict: Verdict
    resolves_at: datetime | None
    part: Part | None = None
    resolved: bool = False
    chars: int = 0


States = Mapping[int, State]
"""The outcomes of one display, by choice."""

_RANKS: dict[tuple[Verdict, Part | None], int] = {
    ("shown", None): 0,
    ("rejected", None): 1,
    ("accepted", "word"): 2,
    ("accepted", "line"): 3,
    ("accepted", "chars"): 4,
    ("accepted", None): 5,
}


def after_event(states: States, word: Word, late_accept_window: timedelta) -> tuple[dict[int, State], Change]:
    """The states that one more event changes, and what it did to the one that it names."""
    others = [state for choice, state in states.items() if choice != word.choice]
    if _names_no_choice(word) and any(state.verdict == "accepted" for state in others):
        word = replace(word, verdict="shown")
    before = states.get(word.choice)
    state, change = _after(before, word, _alone(word, late_accept_window))
    changed = {} if state == before else {word.choice: state}
    unnamed = states.get(UNNAMED_CHOICE)
    if word.verdict == "accepted" and word.choice != UNNAMED_CHOICE and unnamed and _was_no_reject(unnamed):
        changed[UNNAMED_CHOICE] = State("shown", None)
    return changed, change


def _names_no_choice(word: Word) -> bool:
    return word.verdict == "rejected" and word.choice == UNNAMED_CHOICE


def _was_no_reject(state: State) -> bool:
    return state.verdict == "rejected" and not state.resolved


def _alone(word: Word, window: timedelta) -> State:
    """The state if this were the only event."""
    if word.verdict == "shown":
        return State("shown", None)
    whole = word.verdict == "accepted" and word.part is None
    return State(word.verdict, word.received_at if whole else word.received_at + window, word.part, chars=word.chars)


def _after(before: State | None, word: Word, alone: State) -> tuple[State, Change]:
    if before is None:
        return alone, Change.OPENED
    old, new = _rank(before), _rank(alone)
    if new < old or (before.resolved and new == old):
        return before, Change.NONE
    if before.resolved:
        return replace(before, verdict=word.verdict, part=word.part, chars=word.chars), Change.TOO_LATE
    if new == old:
        return replace(before, resolves_at=_first(before.resolves_at, alone.resolves_at)), Change.NONE
    return alone, Change.DECIDED if before.verdict == "shown" else Change.OVERRULED


def _rank(state: State) -> tuple[int, int]:
    """Of two parts the one with more characters is more."""
    return _RANKS[state.verdict, state.part], state.chars


def _first(one: datetime | None, other: datetime | None) -> datetime | None:
    return min(one, other) if one and other else None
