"""The state of a display under every order and repetition of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.outcomes import Change, State, after_event

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=20)


def after(state: State | None, accepted: bool, seconds: float = 0) -> tuple[State, Change]:
    moment = NOON + timedelta(seconds=seconds)
    return after_event(state, accepted=accepted, received_at=moment, now=moment, late_accept_window=WINDOW)


def test_an_accept_resolves_at_once() -> None:
    assert after(None, True) == (State("accepted", NOON), Change.OPENED)


def test_a_reject_waits_for_a_late_accept() -> None:
    rejected, change = after(None, False)
    assert (rejected, change) == (State("rejected", NOON + WINDOW), Change.OPENED)
    assert after(rejected, True, 5) == (State("accepted", NOON + timedelta(seconds=5)), Change.OVERRULED)


def test_a_repeated_reject_does_not_prolong_the_wait() -> None:
    rejected, _ = after(None, False)
    assert after(rejected, False, 5) == (rejected, Change.NONE)


def test_an_accept_after_the_resolution_is_too_late() -> None:
    state, change = after(State("rejected", NOON, resolved=True), True, 60)
    assert change is Change.TOO_LATE
    assert state == State("accepted", NOON, resolved=True)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 15)), min_size=1, max_size=6), st.randoms())
def test_any_accept_in_the_window_wins_in_every_order(events: list[tuple[bool, float]], random) -> None:  # type: ignore[no-untyped-def]
    random.shuffle(events)
    state: State | None = None
    for accepted, seconds in events:
        state, _ = after(state, accepted, seconds)
    assert state is not None
    assert (state.label == "accepted") == any(accepted for accepted, _ in events)
