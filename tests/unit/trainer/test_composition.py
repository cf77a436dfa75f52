"""No mini-batch of accepts alone, or rejects alone, while both wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.trainer.composition import chosen, dealt, one_sided
from shared.contracts.experience import Label

LABELS = st.lists(st.sampled_from(["accepted", "rejected"]), max_size=40)


def labels(text: str) -> list[Label]:
    return ["accepted" if one == "a" else "rejected" for one in text]


def text(wait: list[Label], places: list[int]) -> str:
    return "".join(wait[place][0] for place in places)


def test_order_is_kept_where_it_is_mixed() -> None:
    assert chosen(labels("rarrraaa"), 4) == [0, 1, 2, 3]
    assert dealt(labels("rarrrara"), 4) == list(range(8))


def test_the_other_label_comes_in_by_its_share() -> None:
    assert chosen(labels("rrrrrrra"), 4) == [0, 1, 2, 7]
    assert chosen(labels("aaaarrrr"), 4) == [0, 1, 4, 5]
    assert chosen(labels("rrrra"), 4) == [0, 1, 2, 4]
    assert chosen(labels("rraaaaaaaa"), 2) == [0, 2]


def test_one_label_alone_is_taken_as_it_is() -> None:
    assert chosen(labels("rrrrrr"), 4) == [0, 1, 2, 3]
    assert chosen(labels("ra"), 1) == [0]
    assert chosen([], 4) == []
    assert dealt(labels("rrrr"), 2) == [0, 1, 2, 3]


def test_one_sided_minibatches_of_a_round_are_dealt_anew() -> None:
    wait = labels("rrrraaaa")
    assert text(wait, dealt(wait, 4)) == "rararara"
    wait = labels("aaaarrrr")
    order = dealt(wait, 4)
    assert [place for place in order if wait[place] == "accepted"] == [0, 1, 2, 3]


@given(LABELS, st.integers(1, 20))
def test_what_is_chosen_is_mixed_if_it_can_be(wait: list[Label], count: int) -> None:
    places = chosen(wait, count)
    assert len(places) == len(set(places)) == min(count, len(wait))
    assert places == sorted(places)
    picked = [wait[place] for place in places]
    if len(set(wait)) == 2 and count > 1:
        assert not one_sided(picked)
    if wait:
        assert places[0] == 0  # the oldest never waits


@given(LABELS, st.integers(2, 8))
def test_dealing_loses_nothing_and_mixes_what_can_be_mixed(wait: list[Label], size: int) -> None:
    order = dealt(wait, size)
    assert sorted(order) == list(range(len(wait)))
    dealt_labels = [wait[place] for place in order]
    rare = min(wait.count("accepted"), wait.count("rejected"))
    whole = [dealt_labels[start : start + size] for start in range(0, len(wait) - size + 1, size)]
    before = [wait[start : start + size] for start in range(0, len(wait) - size + 1, size)]
    if rare >= len(wait) / size:
        assert not any(map(one_sided, whole))
    assert sum(map(one_sided, whole)) <= sum(map(one_sided, before)) or order == list(range(len(wait)))
