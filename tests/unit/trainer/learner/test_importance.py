"""The corrections by hand, and what holds for all of them."""

# torch is only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor

from services.trainer.learner.importance import CORRECTIONS
from services.trainer.learner.sequences import sequences_of
from services.trainer.learner_api import ImportanceName

CPU = torch.device("cpu")
TWO_AND_THREE = sequences_of([2, 3], CPU)
RATIOS = [4.0, 0.5, 0.5, 1.0, 0.25]
"""Products 2 and 0.125, geometric means sqrt(2) and 0.5."""


def weights(name: str, cap: float, ratios: list[float] = RATIOS) -> list[float]:
    result: list[float] = CORRECTIONS[name](tensor(ratios, dtype=torch.float64).log(), TWO_AND_THREE, cap).tolist()
    return result


def test_each_name_of_the_setting_is_a_correction() -> None:
    assert set(get_args(ImportanceName)) == set(CORRECTIONS)


@pytest.mark.parametrize(
    ("name", "cap", "expected"),
    [
        ("none", 2.0, [1, 1, 1, 1, 1]),
        ("token_truncate", 2.0, [2, 0.5, 0.5, 1, 0.25]),
        ("sequence_truncate", 10.0, [2, 2, 0.125, 0.125, 0.125]),
        ("sequence_truncate", 1.5, [1.5, 1.5, 0.125, 0.125, 0.125]),
        ("geometric_truncate", 10.0, [math.sqrt(2), math.sqrt(2), 0.5, 0.5, 0.5]),
        ("geometric_truncate", 1.2, [1.2, 1.2, 0.5, 0.5, 0.5]),
        ("sequence_mask", 10.0, [2, 2, 0.125, 0.125, 0.125]),
        ("sequence_mask", 1.5, [0, 0, 0.125, 0.125, 0.125]),
        ("geometric_mask", 1.9, [1.9, 0.5, 0, 0, 0]),
        ("geometric_mask", 1.3, [0, 0, 0, 0, 0]),
        ("geometric_mask", 2.1, [2.1, 0.5, 0.5, 1, 0.25]),
    ],
)
def test_by_hand(name: str, cap: float, expected: list[float]) -> None:
    assert weights(name, cap) == pytest.approx(expected)


def test_sums_and_means_stay_inside_their_sample() -> None:
    values = tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    assert TWO_AND_THREE.total(values).tolist() == [3, 3, 12, 12, 12]
    assert TWO_AND_THREE.mean(values).tolist() == [1.5, 1.5, 4, 4, 4]
    assert TWO_AND_THREE.lengths_N.tolist() == [2, 2, 3, 3, 3]


_LOG_RATIOS = st.lists(st.floats(-60, 60, width=32), min_size=5, max_size=5)


@settings(max_examples=60, deadline=None)
@given(_LOG_RATIOS, st.sampled_from(sorted(CORRECTIONS)), st.floats(1, 8))
def test_weights_are_finite_never_negative_never_beyond_the_cap(logs: list[float], name: str, cap: float) -> None:
    given_weights: Tensor = CORRECTIONS[name](tensor(logs).requires_grad_(), TWO_AND_THREE, cap)
    assert not given_weights.requires_grad
    assert bool(torch.isfinite(given_weights).all())
    assert float(given_weights.min()) >= 0
    assert float(given_weights.max()) <= cap * (1 + 1e-6)


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
def test_on_policy_all_weights_are_one(name: str) -> None:
    assert weights(name, 2.0, [1.0] * 5) == [1.0] * 5


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.floats(1.1, 4))
def test_with_one_token_each_a_sequence_is_its_token(logs: list[float], cap: float) -> None:
    single = sequences_of([1] * 4, CPU)
    token = CORRECTIONS["token_truncate"](tensor(logs), single, cap)
    for name in ("sequence_truncate", "geometric_truncate"):
        assert torch.equal(CORRECTIONS[name](tensor(logs), single, cap), token)
