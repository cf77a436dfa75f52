"""Estimates of KL(π_θ ‖ π_ref) per token from the sampled token alone, as values and as penalties.

In: logprobs [N] of the current policy, with a gradient, and of the reference, in nats. Out: [N], in nats, with the
gradient that the penalty has. All have one shape, `KlEstimator`, and a name in `KL_ESTIMATORS`.
Source of all three: Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html). A good estimate
of the value is not one of the gradient: Liu et al. 2025, "Rethinking KL Regularization in RLHF" (arXiv 2510.01555).
Notation: d = log π_θ - log π_ref of the token that was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


class KlEstimator(Protocol):
    """From logprobs [N] and reference logprobs [N] to nats [N]; the gradient goes through the first alone."""

    def __call__(self, logprobs_N: Tensor, reference_N: Tensor, /) -> Tensor:
        """0 where both agree."""


def k1(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """d. Unbiased, often negative, of high variance.

    As a penalty it is "k1 in the reward" (PPO, REINFORCE++): the gradient is d·∇log π_θ, that of the KL on policy. The
    gradient of d itself would be ∇log π_θ, whose mean is 0: no penalty at all (arXiv 2510.01555).
    """
    gradient_N = k2(logprobs_N, reference_N)
    return (logprobs_N - reference_N).detach() + (gradient_N - gradient_N.detach())


def k2(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """d² / 2. Biased a little as a value, never negative; its gradient d·∇log π_θ is unbiased on policy."""
    return 0.5 * (logprobs_N - reference_N.detach()).square()


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """ρ - log ρ - 1 with ρ = π_ref / π_θ = exp(-d). Unbiased, never negative, of low variance.

    GRPO's penalty (Shao et al. 2024, DeepSeekMath, eq. 4). Its gradient (1 - ρ)·∇log π_θ is the KL's to first order.
    """
    log_rho_N = reference_N.detach() - logprobs_N
    return torch.exp(log_rho_N) - log_rho_N - 1.0


KL_ESTIMATORS: Mapping[str, KlEstimator] = {"k1": k1, "k2": k2, "k3": k3}
"""By the value of `TABWISE_KL_ESTIMATOR`."""
