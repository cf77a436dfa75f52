"""The KL estimators: values by hand, bias over all tokens, and the gradients that they have as penalties."""

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

from services.trainer.learner.kl import KL_ESTIMATORS, KlEstimator, k1, k2, k3
from services.trainer.learner_api import KlEstimatorName

POLICY, REFERENCE = tensor([0.5, 0.3, 0.2], dtype=torch.float64), tensor([0.2, 0.3, 0.5], dtype=torch.float64)
EXACT = 0.5 * math.log(2.5) + 0.2 * math.log(0.4)


def test_each_name_of_the_setting_is_an_estimator() -> None:
    assert set(get_args(KlEstimatorName)) == set(KL_ESTIMATORS)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [(k1, math.log(2)), (k2, math.log(2) ** 2 / 2), (k3, 0.5 + math.log(2) - 1)],
)
def test_by_hand(estimator: KlEstimator, expected: float) -> None:
    """ρ = 0.1 / 0.2; where both agree all are 0."""
    now, reference = tensor([0.2, 0.3], dtype=torch.float64).log(), tensor([0.1, 0.3], dtype=torch.float64).log()
    assert estimator(now, reference).tolist() == pytest.approx([expected, 0.0])


def test_k1_and_k3_are_unbiased_and_k2_nearly() -> None:
    def mean(estimator: KlEstimator) -> float:
        return float((POLICY * estimator(POLICY.log(), REFERENCE.log())).sum())

    assert mean(k1) == pytest.approx(EXACT)
    assert mean(k3) == pytest.approx(EXACT)
    assert mean(k2) == pytest.approx(EXACT, rel=0.2)
    assert mean(k2) != pytest.approx(EXACT, rel=0.01)


def gradient_on_policy(estimator: KlEstimator, logits: Tensor) -> Tensor:
    """Of the penalty as it is trained: the mean over tokens drawn from the policy of the estimate's gradient."""
    logprobs = logits.log_softmax(0)
    penalty = (logprobs.exp().detach() * estimator(logprobs, REFERENCE.log())).sum()
    return torch.autograd.grad(penalty, logits)[0]


def test_k1_and_k2_have_the_gradient_of_the_kl_and_k3_nearly() -> None:
    logits = POLICY.log().requires_grad_()
    logprobs = logits.log_softmax(0)
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - REFERENCE.log())).sum(), logits)[0]

    assert gradient_on_policy(k1, logits).tolist() == pytest.approx(exact.tolist())
    assert gradient_on_policy(k2, logits).tolist() == pytest.approx(exact.tolist())
    third = gradient_on_policy(k3, logits)
    assert third.tolist() != pytest.approx(exact.tolist(), rel=0.01)
    assert float((third * exact).sum()) > 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-8, 0), st.floats(-8, 0)), min_size=1, max_size=6))
def test_k2_and_k3_are_never_negative(pairs: list[tuple[float, float]]) -> None:
    now, reference = tensor(pairs, dtype=torch.float64).T
    assert float(k2(now, reference).min()) >= 0
    assert float(k3(now, reference).min()) >= -1e-12
