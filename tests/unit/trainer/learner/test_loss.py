"""The formulas against numbers worked out by hand."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from services.trainer.learner.loss import clipped_surrogate, importance_weights, k3, token_loss


def logs(*probabilities: float) -> Tensor:
    return tensor(probabilities, dtype=torch.float64).log()


def values(t: Tensor | None) -> list[float]:
    assert t is not None
    numbers: list[float] = t.tolist()
    return numbers


def test_importance_is_the_ratio_of_probabilities() -> None:
    assert values(importance_weights(logs(0.4, 0.1, 0.3), logs(0.2, 0.2, 0.3))) == pytest.approx([2.0, 0.5, 1.0])


def test_importance_stays_finite_for_impossible_tokens() -> None:
    weights = importance_weights(tensor([0.0]), tensor([-math.inf]))

    assert math.isfinite(float(weights))


def test_surrogate_clips_what_has_already_moved_enough() -> None:
    """Ratio 1.5 with A > 0 stops at 1.28, ratio 0.5 with A < 0 at 0.8; the other two directions are free."""
    now, before = logs(0.6, 0.2, 0.6, 0.2), logs(0.4, 0.4, 0.4, 0.4)

    surrogate, clipped = clipped_surrogate(now, before, tensor([1.0, -1.0, -1.0, 1.0]), clip_low=0.2, clip_high=0.28)

    assert values(surrogate) == pytest.approx([1.28, -0.8, -1.5, 0.5])
    assert clipped.tolist() == [True, True, False, False]


def test_clipped_tokens_have_no_gradient() -> None:
    now = logs(0.6, 0.42).requires_grad_()

    surrogate, _ = clipped_surrogate(now, logs(0.4, 0.4), tensor([1.0, 1.0]), clip_low=0.2, clip_high=0.28)
    surrogate.sum().backward()

    assert values(now.grad) == pytest.approx([0.0, 1.05])


def test_k3_by_hand() -> None:
    """ρ = 0.1/0.2 gives 0.5 - ln 0.5 - 1; equal policies give 0."""
    assert values(k3(logs(0.2, 0.3), logs(0.1, 0.3))) == pytest.approx([0.5 + math.log(2) - 1, 0.0])


def test_first_step_of_a_round_is_truncated_reinforce() -> None:
    """Without proximal logprobs the gradient is -min(w, cap)·A: w = 4 is cut to 2, w = 0.5 is not."""
    now = logs(0.4, 0.1).requires_grad_()

    terms = token_loss(
        now,
        logs(0.1, 0.2),
        tensor([1.0, -3.0]),
        clip_low=0.2,
        clip_high=0.28,
        importance_cap=2.0,
        kl_coef=0.1,
    )
    terms.loss_N.sum().backward()

    assert values(terms.loss_N) == pytest.approx([-2.0, 1.5])
    assert values(now.grad) == pytest.approx([-2.0, 1.5])
    assert values(terms.importance_N) == pytest.approx([4.0, 0.5])
    assert not terms.clipped_N.any()
    assert values(terms.kl_N) == [0.0, 0.0]


def test_later_steps_weigh_by_proximal_over_behaviour_and_clip_around_proximal() -> None:
    """w = 0.4/0.2 = 2 under a cap of 1.5, ratio 0.5/0.4 = 1.25 inside the clip, KL against the reference added."""
    now = logs(0.5).requires_grad_()

    terms = token_loss(
        now,
        logs(0.2),
        tensor([1.0]),
        proximal_N=logs(0.4),
        reference_N=logs(0.25),
        clip_low=0.2,
        clip_high=0.28,
        importance_cap=1.5,
        kl_coef=0.1,
    )
    terms.loss_N.sum().backward()

    kl = 0.5 + math.log(2) - 1
    assert values(terms.loss_N) == pytest.approx([-1.5 * 1.25 + 0.1 * kl])
    assert values(now.grad) == pytest.approx([-1.5 * 1.25 + 0.1 * (1 - 0.5)])
    assert values(terms.kl_N) == pytest.approx([kl])
