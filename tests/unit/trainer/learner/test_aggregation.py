"""From tokens to a mini-batch, by hand and however the mini-batch is cut."""

# torch is only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from services.trainer.learner.aggregation import AGGREGATIONS, MinibatchSize
from services.trainer.learner.sequences import sequences_of
from services.trainer.learner_api import AggregationName

CPU = torch.device("cpu")


def whole(name: str, losses: list[list[float]]) -> float:
    """Samples' token losses, all in one micro-batch."""
    return in_parts(name, [losses])


def in_parts(name: str, parts: list[list[list[float]]]) -> float:
    aggregation = AGGREGATIONS[name](8)
    samples = [sample for part in parts for sample in part]
    size = MinibatchSize(sum(map(len, samples)), len(samples))
    numerators = [
        float(aggregation.part(tensor([t for s in part for t in s]), sequences_of([len(s) for s in part], CPU)))
        for part in parts
    ]
    return sum(numerators) / aggregation.divisor(size)


def test_each_name_of_the_setting_is_an_aggregation() -> None:
    assert set(get_args(AggregationName)) == set(AGGREGATIONS)


@pytest.mark.parametrize(
    ("name", "expected"), [("token_mean", 12 / 4), ("sequence_mean", (6 + 2) / 2), ("dr_grpo", 12 / (2 * 8))]
)
def test_by_hand(name: str, expected: float) -> None:
    """One sample of one token with 6, one of three tokens with 1, 2, 3."""
    assert whole(name, [[6.0], [1.0, 2.0, 3.0]]) == pytest.approx(expected)


def test_a_long_sample_weighs_more_unless_samples_are_averaged() -> None:
    """What a token of the first sample adds to the loss: 1/N; 1/(n·|y|); 1/(n·L)."""
    losses = [[1.0], [0.0] * 3]
    assert [whole(name, losses) for name in AGGREGATIONS] == pytest.approx([1 / 4, 1 / 2, 1 / 16])
    losses = [[0.0], [1.0, 0.0, 0.0]]
    assert [whole(name, losses) for name in AGGREGATIONS] == pytest.approx([1 / 4, 1 / 6, 1 / 16])


_SAMPLES = st.lists(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=5), min_size=2, max_size=6)


@settings(max_examples=40, deadline=None)
@given(_SAMPLES, st.data(), st.sampled_from(sorted(AGGREGATIONS)))
def test_micro_batches_do_not_matter(samples: list[list[float]], data: st.DataObject, name: str) -> None:
    cut = data.draw(st.integers(1, len(samples) - 1))
    assert in_parts(name, [samples[:cut], samples[cut:]]) == pytest.approx(whole(name, samples), abs=1e-5)
