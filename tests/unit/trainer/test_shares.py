"""A fair share of each key, and nothing lost."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.shares import fair, over

KEYS = st.text(alphabet="ABCD", max_size=60)


@pytest.mark.parametrize(
    ("keys", "count", "taken"),
    [
        ("", 4, ""),
        ("AAAAAA", 4, "AAAA"),
        ("AAAAAB", 4, "AAB"),
        ("AAAABB", 4, "AABB"),
        ("ABCD", 4, "ABCD"),
        ("AAB", 3, "AAB"),
        ("AAAAAAAABBBB", 8, "AABBAABB"),
        ("A", 1, "A"),
    ],
)
def test_what_is_taken(keys: str, count: int, taken: str) -> None:
    assert "".join(keys[place] for place in fair(keys, count, 4, 0.5)) == taken


def test_the_whole_share_takes_the_first() -> None:
    assert fair("AAAAAB", 4, 4, 1.0) == [0, 1, 2, 3]


@given(KEYS, st.integers(1, 32), st.integers(1, 16), st.floats(0.05, 1))
def test_no_key_has_more_than_its_share_while_others_wait(keys: str, count: int, size: int, share: float) -> None:
    taken = fair(keys, count, size, share)
    assert len(taken) == len(set(taken)) <= count
    assert bool(taken) == bool(keys)
    left = list(range(len(keys)))
    for start in range(0, len(taken), size):
        batch = taken[start : start + size]
        places = min(size, count - start)
        if len({keys[place] for place in left}) > 1:
            assert max(Counter(keys[place] for place in batch).values()) <= max(1, math.ceil(share * places))
        else:
            assert len(batch) == min(places, len(left))
        left = [place for place in left if place not in batch]


@given(KEYS.filter(bool), st.integers(1, 8), st.floats(0.05, 1))
def test_everything_is_taken_in_the_end_and_each_key_in_its_order(keys: str, size: int, share: float) -> None:
    waiting, seen = list(range(len(keys))), []
    while waiting:
        batch = fair([keys[place] for place in waiting], size, size, share)
        seen += [waiting[place] for place in batch]
        waiting = [place for at, place in enumerate(waiting) if at not in set(batch)]
    for key in set(keys):
        assert [place for place in seen if keys[place] == key] == [p for p, one in enumerate(keys) if one == key]


def test_over() -> None:
    assert over("AAAB", 0.5)
    assert not over("AABB", 0.5)
    assert not over("AAB", 0.5)
    assert not over("AAAA", 1.0)
    assert not over("", 0.5)
