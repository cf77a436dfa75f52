"""Figures of a comparison: right, and the same however they are cut into batches."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.comparing import Comparison, Figures

REWARD = st.none() | st.floats(-2, 2).map(lambda value: round(value, 3))
PAIRS = st.lists(st.tuples(st.integers(0, 2), REWARD, REWARD), max_size=40)


def test_what_is_counted() -> None:
    figures = Figures()
    for before, after in [(0.75, 0.75), (0.75, 0.25), (-0.25, 0.25), (0.0, 0.5), (-0.25, None), (None, 1.0)]:
        figures.add(before, after)
    assert (figures.count, figures.undecided, figures.changed, figures.sign_flips) == (4, 2, 3, 1)
    assert figures.mean_before == pytest.approx(0.3125)
    assert figures.mean_after == pytest.approx(0.4375)
    expected = statistics.correlation([0.75, 0.75, -0.25, 0.0], [0.75, 0.25, 0.25, 0.5])
    assert figures.correlation == pytest.approx(expected)


def test_of_nothing_and_of_constants_nothing_is_said() -> None:
    assert (Figures().mean_before, Figures().mean_after, Figures().correlation) == (None, None, None)
    figures = Figures()
    for after in (0.1, 0.2, 0.3):
        figures.add(-0.25, after)
    assert figures.correlation is None


@given(PAIRS, st.integers(0, 40))
def test_stopping_in_between_changes_nothing(pairs: list[tuple[int, float | None, float | None]], at: int) -> None:
    whole, first = Comparison(), Comparison()
    for pair in pairs:
        whole.add(*pair)
    for pair in pairs[:at]:
        first.add(*pair)
    rest = Comparison.from_json(json.loads(json.dumps(first.to_json())))
    for pair in pairs[at:]:
        rest.add(*pair)
    assert rest == whole
    assert whole.total.count + whole.total.undecided == len(pairs)
    assert whole.total.correlation is None or -1 <= whole.total.correlation <= 1
