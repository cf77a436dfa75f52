"""The surrogate and the objective against numbers worked out by hand; the default against what it has always been."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor

from services.trainer.learner.importance import ratio
from services.trainer.learner.loss import Objective, TokenLoss, Tokens, clip, clipped_surrogate
from services.trainer.learner.sequences import Sequences, sequences_of
from services.trainer.learner_api import LearnerConfig


def objective(**changes: Any) -> Objective:
    return Objective(LearnerConfig.model_validate({"model_path": "m"} | changes))


def samples(*lengths: int) -> Sequences:
    return sequences_of(lengths, torch.device("cpu"))


def logs(*probabilities: float) -> Tensor:
    return tensor(probabilities, dtype=torch.float64).log()


def values(t: Tensor | None) -> list[float]:
    assert t is not None
    numbers: list[float] = t.tolist()
    return numbers


def test_importance_is_the_ratio_of_probabilities() -> None:
    assert values(ratio(logs(0.4, 0.1, 0.3) - logs(0.2, 0.2, 0.3))) == pytest.approx([2.0, 0.5, 1.0])


def test_importance_stays_finite_for_impossible_tokens() -> None:
    weights = ratio(tensor([0.0]) - tensor([-math.inf]))

    assert math.isfinite(float(weights))


def test_surrogate_clips_what_has_already_moved_enough() -> None:
    """Ratio 1.5 with A > 0 stops at 1.28, ratio 0.5 with A < 0 at 0.8; the other two directions are free."""
    now, before = logs(0.6, 0.2, 0.6, 0.2), logs(0.4, 0.4, 0.4, 0.4)

    surrogate, clipped = clipped_surrogate(now, before, tensor([1.0, -1.0, -1.0, 1.0]), clip_low=0.2, clip_high=0.28)

    assert values(surrogate) == pytest.approx([1.28, -0.8, -1.5, 0.5])
    assert clipped.tolist() == [True, True, False, False]


def test_clip_is_symmetric() -> None:
    """Ratio 1.25 with A > 0 stops at 1.2 where clip-higher lets it pass."""
    now, before = logs(0.5, 0.2), logs(0.4, 0.4)

    surrogate, clipped = clip(now, before, tensor([1.0, -1.0]), 0.2, 0.28)
    higher, free = clipped_surrogate(now, before, tensor([1.0, -1.0]), 0.2, 0.28)

    assert values(surrogate) == pytest.approx([1.2, -0.8])
    assert clipped.tolist() == [True, True]
    assert values(higher) == pytest.approx([1.25, -0.8])
    assert free.tolist() == [False, True]


def test_clipped_tokens_have_no_gradient() -> None:
    now = logs(0.6, 0.42).requires_grad_()

    surrogate, _ = clipped_surrogate(now, logs(0.4, 0.4), tensor([1.0, 1.0]), clip_low=0.2, clip_high=0.28)
    surrogate.sum().backward()

    assert values(now.grad) == pytest.approx([0.0, 1.05])


def test_first_step_of_a_round_is_truncated_reinforce() -> None:
    """Without proximal logprobs the gradient is -min(w, cap)·A: w = 4 is cut to 2, w = 0.5 is not."""
    now = logs(0.4, 0.1).requires_grad_()

    terms = objective(kl_coef=0.1)(Tokens(now, logs(0.1, 0.2), tensor([1.0, -3.0]), samples(1, 1)))
    terms.loss_N.sum().backward()

    assert values(terms.loss_N) == pytest.approx([-2.0, 1.5])
    assert values(now.grad) == pytest.approx([-2.0, 1.5])
    assert values(terms.importance_N) == pytest.approx([4.0, 0.5])
    assert not terms.clipped_N.any()
    assert values(terms.kl_N) == [0.0, 0.0]


def test_later_steps_weigh_by_proximal_over_behaviour_and_clip_around_proximal() -> None:
    """w = 0.4/0.2 = 2 under a cap of 1.5, ratio 0.5/0.4 = 1.25 inside the clip, KL against the reference added."""
    now = logs(0.5).requires_grad_()

    tokens = Tokens(now, logs(0.2), tensor([1.0]), samples(1), proximal_N=logs(0.4), reference_N=logs(0.25))
    terms = objective(importance_cap=1.5, kl_coef=0.1)(tokens)
    terms.loss_N.sum().backward()

    kl = 0.5 + math.log(2) - 1
    assert values(terms.loss_N) == pytest.approx([-1.5 * 1.25 + 0.1 * kl])
    assert values(now.grad) == pytest.approx([-1.5 * 1.25 + 0.1 * (1 - 0.5)])
    assert values(terms.kl_N) == pytest.approx([kl])


def test_what_is_masked_learns_nothing_but_the_kl() -> None:
    """The first sample's ratios are 4 and 1: beyond a cap of 2 it is dropped, the second, 1, is not."""
    now = logs(0.4, 0.3, 0.3).requires_grad_()
    tokens = Tokens(now, logs(0.1, 0.3, 0.3), tensor([1.0, 1.0, 1.0]), samples(2, 1))

    terms = objective(importance="sequence_mask")(tokens)
    terms.loss_N.sum().backward()

    assert terms.masked_N.tolist() == [True, True, False]
    assert values(now.grad) == pytest.approx([0.0, 0.0, -1.0])
    assert values(terms.importance_N) == pytest.approx([4.0, 1.0, 1.0])


@pytest.mark.parametrize("importance", ["none", "token_truncate", "sequence_truncate"])
def test_off_policy_never_weighs_more_than_its_cap(importance: str) -> None:
    """Ratios 4, 0.5 and 4: the old ones become 1 and 0.5 whatever the correction is; the new one keeps its own."""
    now = logs(0.4, 0.1, 0.4).requires_grad_()
    old = tensor([True, True, False])
    tokens = Tokens(now, logs(0.1, 0.2, 0.1), tensor([1.0, 1.0, 1.0]), samples(1, 1, 1), off_policy_N=old)

    terms = objective(importance=importance, importance_cap=3.0)(tokens)

    assert values(terms.loss_N) == pytest.approx([-1.0, -0.5, -1.0 if importance == "none" else -3.0])


def before(tokens: Tokens, config: LearnerConfig) -> TokenLoss:
    """The loss as it was when there was only one, word for word."""
    proximal_N = tokens.logprobs_N.detach() if tokens.proximal_N is None else tokens.proximal_N
    weight_N = torch.exp((proximal_N - tokens.behaviour_N).detach().clamp(-30.0, 30.0))
    ratio_N = torch.exp(tokens.logprobs_N - proximal_N.detach())
    free_N = ratio_N * tokens.advantages_N
    bound_N = ratio_N.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * tokens.advantages_N
    surrogate_N, clipped_N = torch.minimum(free_N, bound_N), bound_N < free_N
    if tokens.reference_N is None:
        kl_N = torch.zeros_like(tokens.logprobs_N)
    else:
        log_rho_N = tokens.reference_N.detach() - tokens.logprobs_N
        kl_N = torch.exp(log_rho_N) - log_rho_N - 1.0
    loss_N = config.kl_coef * kl_N - weight_N.clamp(max=config.importance_cap) * surrogate_N
    return TokenLoss(loss_N, kl_N.detach(), clipped_N, weight_N, torch.zeros_like(clipped_N))


def gradient(make: Any, tokens: Tokens) -> tuple[TokenLoss, Tensor]:
    now_N = tokens.logprobs_N.clone().requires_grad_()
    terms = make(replace(tokens, logprobs_N=now_N))
    terms.loss_N.sum().backward()
    assert now_N.grad is not None
    return terms, now_N.grad


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    later=st.booleans(),
    held=st.booleans(),
)
def test_the_default_is_bit_for_bit_what_it_was(seed: int, lengths: list[int], later: bool, held: bool) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(scale: float) -> Tensor:
        return -scale * torch.rand(sum(lengths), generator=generator)

    advantages = draw(4.0) + 2.0
    tokens = Tokens(draw(5.0), draw(5.0), advantages, samples(*lengths), draw(5.0) if later else None)
    tokens = replace(tokens, reference_N=draw(5.0) if held else None)
    config = LearnerConfig(model_path="m")

    mine, my_gradient = gradient(Objective(config), tokens)
    theirs, their_gradient = gradient(lambda one: before(one, config), tokens)

    for name in ("loss_N", "kl_N", "clipped_N", "importance_N", "masked_N"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
    assert torch.equal(my_gradient, their_gradient)
