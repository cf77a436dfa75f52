"""The value tracker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.tracker import Value, bucket_of, predict, updated


@pytest.mark.parametrize(("tokens", "length"), [(0, 32), (1, 32), (32, 32), (33, 64), (64, 64), (1000, 1024)])
def test_buckets_by_prompt_length(tokens: int, length: int) -> None:
    assert bucket_of("acme", "python", tokens) == f"acme/python/{length}"


def test_without_decay_it_is_the_mean() -> None:
    changed = updated({}, [("b", 0.75), ("b", -0.25), ("c", 0.0)], decay=1.0)
    assert changed == {"b": Value(pytest.approx(0.25), 2.0), "c": Value(0.0, 1.0)}  # type: ignore[arg-type]


def test_decay_forgets() -> None:
    value = updated({"b": Value(0.75, 100.0)}, [("b", -0.25)] * 200, decay=0.9)["b"]
    assert value.mean == pytest.approx(-0.25, abs=1e-3)
    assert value.weight == pytest.approx(10, abs=0.1)


def test_the_prior_fills_in_while_young() -> None:
    assert predict(None, 0.2) == 0.2
    assert predict(Value(0.6, 1.0), 0.2) == pytest.approx(0.4)
    assert predict(Value(0.6, 99.0), 0.2) == pytest.approx(0.596)


@given(st.lists(st.floats(-1, 1), min_size=1), st.floats(0.5, 1.0))
def test_stays_within_what_was_seen(rewards: list[float], decay: float) -> None:
    value = updated({}, [("b", reward) for reward in rewards], decay)["b"]
    assert min(rewards) - 1e-9 <= value.mean <= max(rewards) + 1e-9
