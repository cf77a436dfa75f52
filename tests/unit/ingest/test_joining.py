"""Which of several generations an event speaks of."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from services.ingest.joining import Ambiguous, Candidate, Joined, Unmatched, match, match_typed_ahead
from tests.factories import fim_prompt, make_generation

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def candidate(text: str, *, seconds: float = 0, labelled: bool = False, **changes: Any) -> Candidate:
    generation = make_generation(text, created_at=NOON + timedelta(seconds=seconds), **changes)
    names = ("generation_id", "choice_index", "created_at", "project_id", "policy_version", "prompt", "text")
    more = ("token_ids", "text_offsets", "finish_reason")
    return Candidate(**{n: getattr(generation, n) for n in (*names, *more)}, stop_string=None, labelled=labelled)


def joined_to(result: object) -> str:
    assert isinstance(result, Joined)
    return result.candidate.generation_id


def test_one_fitting_generation() -> None:
    one = candidate("foo(a)")
    assert match("foo(a)", [one]) == Joined(one, 5)


def test_nothing_shown_and_nothing_there() -> None:
    assert match(" \n", [candidate("foo")]) == Unmatched("nothing_shown")
    assert match("foo", []) == Unmatched("no_generation")
    assert match("foo", [candidate("bar")]) == Unmatched("text_differs")


def test_the_text_decides_between_generations() -> None:
    first, second = candidate("foo(a)"), candidate("bar(b)", seconds=5)
    assert joined_to(match("foo(a)", [second, first])) == first.generation_id


def test_an_exact_prefix_beats_a_looser_fit() -> None:
    exact, trimmed = candidate("foo(a)"), candidate(" foo(a)", seconds=5)
    assert joined_to(match("foo(a)", [trimmed, exact])) == exact.generation_id


def test_equal_texts_go_to_the_newest_that_no_display_claimed() -> None:
    old, claimed = candidate("foo"), candidate("foo", seconds=5, labelled=True)
    middle = candidate("foo", seconds=3)
    assert joined_to(match("foo", [claimed, middle, old])) == middle.generation_id


def test_a_repeated_display_labels_the_same_sample_again() -> None:
    only = candidate("foo", labelled=True)
    assert joined_to(match("foo", [only])) == only.generation_id


def test_of_one_request_choice_zero_was_displayed() -> None:
    zero = candidate("foo", request_id="cmpl-1")
    one = candidate("foo", request_id="cmpl-1", choice_index=1)
    assert joined_to(match("foo", [one, zero])) == zero.generation_id


def test_different_rests_behind_the_same_displayed_tokens_do_not_matter() -> None:
    old = candidate("foo(a)\nbar", finish_reason="length")
    new = candidate("foo(a)\nbaz", seconds=5, finish_reason="length")
    assert joined_to(match("foo(a)", [new, old])) == new.generation_id


def test_different_displayed_tokens_are_ambiguous() -> None:
    whole = candidate("foobar", tokens=["foobar"])
    split = candidate("foobar", tokens=["foo", "bar"], seconds=5)
    assert match("foobar", [split, whole]) == Ambiguous()


def test_typing_ahead_is_proven_by_the_prompt() -> None:
    prompt = fim_prompt("x = ", "\n")
    one = candidate("foo(alpha)", prompt=prompt)
    later = hashlib.sha256(fim_prompt("x = foo(", "\n").encode()).digest()
    found = match_typed_ahead("alpha)", [later], [one])
    assert joined_to(found) == one.generation_id
    assert match_typed_ahead("beta)", [later], [one]) == Unmatched("no_generation")
    other = hashlib.sha256(fim_prompt("y = foo(", "\n").encode()).digest()
    assert match_typed_ahead("alpha)", [other], [one]) == Unmatched("no_generation")


def test_typing_ahead_up_to_a_blank_that_the_editor_then_strips() -> None:
    one = candidate("foo bar", prompt=fim_prompt("x = "))
    later = hashlib.sha256(fim_prompt("x = foo").encode()).digest()
    assert joined_to(match_typed_ahead("bar", [later], [one])) == one.generation_id
