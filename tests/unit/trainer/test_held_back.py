"""The search for what is not finite."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer import composition
from services.trainer.held_back import HeldBack, minibatches
from shared.contracts.experience import Label

LABELS: list[Label] = ["accepted", "rejected"]


def search(ids: list[str], culprits: set[str], size: int) -> tuple[list[str], list[str], int]:
    """Rounds of everything that is left until nothing is: trained, given up, number of rounds."""
    held, left, trained, given_up, rounds = HeldBack(), list(ids), [], [], 0
    while left:
        rounds += 1
        batches = minibatches(["accepted"] * len(left), [held.failures(one) for one in left], size)
        for batch in [[left[place] for place in places] for places in batches]:
            if culprits & set(batch):
                given_up += held.failed(batch)
            else:
                trained += batch
                held.done(batch)
        left = [one for one in left if one not in trained and one not in given_up]
    return trained, given_up, rounds


@pytest.mark.parametrize(("size", "rounds"), [(1, 2), (2, 2), (16, 5)])
def test_one_culprit_is_found_and_the_others_are_trained(size: int, rounds: int) -> None:
    ids = [str(number) for number in range(16)]
    trained, given_up, took = search(ids, {"5"}, size)
    assert (given_up, took) == (["5"], rounds)
    assert sorted(trained + given_up) == sorted(ids)


@settings(max_examples=50)
@given(st.integers(1, 40), st.sets(st.integers(0, 39)), st.integers(1, 20))
def test_whatever_the_culprits_are_all_others_are_trained(count: int, culprits: set[int], size: int) -> None:
    ids = [str(number) for number in range(count)]
    bad = {str(number) for number in culprits if number < count}
    trained, given_up, rounds = search(ids, bad, size)
    assert set(given_up) == bad
    assert sorted(trained) == sorted(set(ids) - bad)
    assert rounds <= size.bit_length() + 1


def test_alone_by_chance_it_gets_a_second_try() -> None:
    held = HeldBack()
    assert held.failed(["a"]) == []
    assert held.failed(["a"]) == ["a"]


@settings(max_examples=50)
@given(st.lists(st.sampled_from(LABELS), max_size=30), st.integers(1, 8))
def test_where_nothing_failed_mini_batches_are_as_dealt(labels: list[Label], size: int) -> None:
    order = composition.dealt(labels, size)
    expected = [order[start : start + size] for start in range(0, len(order), size)]
    assert minibatches(labels, [0] * len(labels), size) == expected


def test_numbers_of_failures_are_not_mixed_and_labels_are() -> None:
    labels: list[Label] = ["accepted", "accepted", "rejected", "rejected", "accepted", "rejected"]
    assert minibatches(labels, [1, 1, 1, 1, 0, 0], 4) == [[4, 5], [0, 2], [1, 3]]
