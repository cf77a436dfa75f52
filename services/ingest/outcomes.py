"""What becomes of one display as events about it arrive. Pure.

    event     | no outcome yet          | rejected, open             | rejected, resolved     | accepted
    ----------|-------------------------|----------------------------|------------------------|----------
    accepted  | accepted, resolves now  | accepted, resolves now     | accepted, too late     | no change
    rejected  | rejected, after window  | no change (first one counts)| no change             | no change

"Too late": the state tells the client's latest word, the reward stays that of the reject, nothing is trained again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from shared.contracts.experience import Label


class Change(StrEnum):
    """What an event did to an outcome; a metric label."""

    OPENED = "opened"
    OVERRULED = "overruled"
    TOO_LATE = "too_late"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class State:
    """The part of an outcome that events change."""

    label: Label
    resolves_at: datetime
    resolved: bool = False


def after_event(
    state: State | None, *, accepted: bool, received_at: datetime, now: datetime, late_accept_window: timedelta
) -> tuple[State, Change]:
    """The state after one more event, and what the event did."""
    if state is None:
        if accepted:
            return State("accepted", now), Change.OPENED
        return State("rejected", received_at + late_accept_window), Change.OPENED
    if not accepted or state.label == "accepted":
        return state, Change.NONE
    if state.resolved:
        return State("accepted", state.resolves_at, resolved=True), Change.TOO_LATE
    return State("accepted", now), Change.OVERRULED
