"""The states of a display under every order and repetition of events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.outcomes import Change, Part, State, Verdict, Word, after_event

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=20)
VERDICTS: list[tuple[Verdict, Part | None]] = [
    ("shown", None), ("rejected", None), ("accepted", "word"), ("accepted", "line"), ("accepted", "chars"),
    ("accepted", None),
]  # fmt: skip
"""From the least to the best word."""


def word(verdict: Verdict, seconds: float = 0, *, part: Part | None = None, choice: int = 0) -> Word:
    return Word(verdict, NOON + timedelta(seconds=seconds), choice, part)


def fold(words: Iterable[Word], states: dict[int, State] | None = None) -> dict[int, State]:
    states = dict(states or {})
    for one in words:
        states |= after_event(states, one, WINDOW)[0]
    return states


def after(state: State | None, one: Word) -> tuple[State, Change]:
    states = {} if state is None else {0: state}
    changed, change = after_event(states, one, WINDOW)
    return (states | changed)[0], change


def test_an_accept_resolves_at_once() -> None:
    assert after(None, word("accepted")) == (State("accepted", NOON), Change.OPENED)


def test_a_reject_waits_for_a_late_accept() -> None:
    rejected, change = after(None, word("rejected"))
    assert (rejected, change) == (State("rejected", NOON + WINDOW), Change.OPENED)
    assert after(rejected, word("accepted", 5)) == (State("accepted", NOON + timedelta(seconds=5)), Change.OVERRULED)


def test_a_repeated_reject_does_not_prolong_the_wait() -> None:
    rejected, _ = after(None, word("rejected"))
    assert after(rejected, word("rejected", 5)) == (rejected, Change.NONE)


def test_an_accept_after_the_resolution_is_too_late() -> None:
    state, change = after(State("rejected", NOON, resolved=True), word("accepted", 60))
    assert change is Change.TOO_LATE
    assert state == State("accepted", NOON, resolved=True)


def test_shown_alone_never_becomes_final() -> None:
    assert fold([word("shown"), word("shown", 5)]) == {0: State("shown", None)}
    assert after(State("shown", None), word("rejected", 5)) == (
        State("rejected", NOON + timedelta(seconds=5) + WINDOW),
        Change.DECIDED,
    )


def test_a_partial_accept_waits_for_the_rest() -> None:
    partly, change = after(None, word("accepted", part="line"))
    assert (partly, change) == (State("accepted", NOON + WINDOW, "line"), Change.OPENED)
    assert after(partly, word("rejected", 1)) == (partly, Change.NONE)
    whole = State("accepted", NOON + timedelta(seconds=2))
    assert after(partly, word("accepted", 2)) == (whole, Change.OVERRULED)
    assert after(whole, word("accepted", 3, part="line")) == (whole, Change.NONE)


def test_of_two_parts_the_longer_counts() -> None:
    shorter, longer = (Word("accepted", NOON, part="chars", chars=chars) for chars in (3, 8))
    for order in permutations([shorter, longer]):
        assert fold(order) == {0: State("accepted", NOON + WINDOW, "chars", chars=8)}


def test_a_dismiss_that_could_not_name_its_choice_rejects_none_where_another_was_accepted() -> None:
    events = [word("shown"), word("rejected", 1), word("accepted", 2, choice=1)]
    for order in permutations(events):
        assert fold(order) == {0: State("shown", None), 1: State("accepted", NOON + timedelta(seconds=2))}


def test_a_dismiss_that_names_its_choice_counts() -> None:
    events = [word("shown"), word("accepted", 1), word("rejected", 2, choice=1)]
    for order in permutations(events):
        assert {choice: state.verdict for choice, state in fold(order).items()} == {0: "accepted", 1: "rejected"}


def test_what_is_final_is_not_taken_back() -> None:
    final = State("rejected", NOON, resolved=True)
    states = fold([word("accepted", 60, choice=1)], {0: final})
    assert states == {0: final, 1: State("accepted", NOON + timedelta(seconds=60))}


words = st.builds(
    lambda said, seconds, choice, chars: Word(
        said[0], NOON + timedelta(seconds=seconds), choice, said[1], chars if said[1] == "chars" else 0
    ),
    st.sampled_from(VERDICTS), st.sampled_from([0.0, 1.0, 5.0, 14.0]), st.sampled_from([0, 0, 1, 2]),
    st.integers(1, 3),
)  # fmt: skip


@given(st.sets(words, min_size=1, max_size=7), st.data())
def test_the_states_depend_on_the_set_of_events_alone(events: set[Word], data: st.DataObject) -> None:
    once = fold(data.draw(st.permutations(sorted(events, key=repr))))
    again = data.draw(st.lists(st.sampled_from(sorted(events, key=repr)), max_size=5))
    assert fold(data.draw(st.permutations([*events, *again]))) == once


@given(st.lists(st.sampled_from(VERDICTS), min_size=1, max_size=6))
def test_the_best_word_about_a_choice_counts(said: list[tuple[Verdict, Part | None]]) -> None:
    state = fold(word(verdict, number, part=part) for number, (verdict, part) in enumerate(said))[0]
    assert (state.verdict, state.part) == max(said, key=VERDICTS.index)
    first = NOON + timedelta(seconds=said.index((state.verdict, state.part)))
    if state.verdict == "shown":
        assert state.resolves_at is None
    else:
        assert state.resolves_at == (first if (state.verdict, state.part) == ("accepted", None) else first + WINDOW)


@given(st.lists(words, min_size=1, max_size=5), st.lists(words, max_size=5))
def test_nothing_that_comes_after_the_resolution_opens_it_again(before: list[Word], later: list[Word]) -> None:
    final = {
        choice: State(state.verdict, state.resolves_at, state.part, resolved=True)
        for choice, state in fold(before).items()
        if state.resolves_at is not None
    }
    states = fold(later, final)
    for choice, state in final.items():
        assert states[choice].resolved
        assert states[choice].resolves_at == state.resolves_at
        assert VERDICTS.index((states[choice].verdict, states[choice].part)) >= VERDICTS.index(
            (state.verdict, state.part)
        )
