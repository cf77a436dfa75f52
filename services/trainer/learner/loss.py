"""The loss, as pure functions of tensors. N credited tokens of a micro-batch, in any order.

Three policies are told apart (decoupled PPO; Hilton, Cobbe & Schulman 2021, "Batch size-invariance for policy
optimization", section 3):
- *behaviour* μ, which sampled the tokens in the engine, one or more versions ago and with the engine's own kernels;
- *proximal* π_prox, the learner's policy when the round began, around which the trust region lies;
- *current* π_θ, which is being changed.
Why so, and not one ratio to the behaviour policy: docs/decisions/0005-learner.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LOG_RATIO_LIMIT = 30.0
"""exp(30) ≈ 1e13: reported importance weights stay finite, and the cap applies long before."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Per credited token. `loss_N` alone has a gradient."""

    loss_N: Tensor
    kl_N: Tensor
    clipped_N: Tensor
    importance_N: Tensor
    """π_prox / μ before the cap."""


def importance_weights(proximal_N: Tensor, behaviour_N: Tensor) -> Tensor:
    """π_prox(y) / μ(y) for each token, from logprobs, detached. Not truncated.

    With `min(·, cap)` applied by the caller this is truncated importance sampling (Ionides 2008, "Truncated Importance
    Sampling", eq. 4; used between engine and learner by Yao et al. 2025, "Your Efficient RL Framework Secretly Brings
    You Off-Policy RL Training").
    """
    return torch.exp((proximal_N - behaviour_N).detach().clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))


def clipped_surrogate(
    logprobs_N: Tensor, proximal_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """`min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)` with r = π_θ / π_prox, and where the clip decided.

    PPO's objective (Schulman et al. 2017, eq. 7), per token and with the two bounds apart ("clip-higher": DAPO, Yu et
    al. 2025, eq. 10). To be maximised. Where the clip decided, the gradient is zero.
    """
    ratio_N = torch.exp(logprobs_N - proximal_N.detach())
    free_N = ratio_N * advantages_N
    bound_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages_N
    return torch.minimum(free_N, bound_N), bound_N < free_N


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Unbiased, non-negative estimate of KL(π_θ ‖ π_ref) per token: `ρ - log ρ - 1` with ρ = π_ref / π_θ.

    Schulman 2020, "Approximating KL Divergence" (k3); GRPO uses it as its penalty (Shao et al. 2024, eq. 4).
    """
    log_rho_N = reference_N.detach() - logprobs_N
    return torch.exp(log_rho_N) - log_rho_N - 1.0


def token_loss(
    logprobs_N: Tensor,
    behaviour_N: Tensor,
    advantages_N: Tensor,
    *,
    proximal_N: Tensor | None = None,
    reference_N: Tensor | None = None,
    clip_low: float,
    clip_high: float,
    importance_cap: float,
    kl_coef: float,
) -> TokenLoss:
    """`- min(π_prox/μ, cap) · surrogate + kl_coef · k3`, token by token; the caller divides by the mini-batch's tokens.

    Dividing the sum by one number for the whole mini-batch is DAPO's token-level loss (eq. 8), and makes the gradient
    independent of how tokens are packed into rows, micro-batches and ranks.
    Without `proximal_N` the current policy is the proximal one (first step of a round): the ratio is exactly 1 and the
    gradient is `- min(w, cap) · A · ∇logp`. Without `reference_N` there is no KL term.
    """
    proximal_N = logprobs_N.detach() if proximal_N is None else proximal_N
    weight_N = importance_weights(proximal_N, behaviour_N)
    surrogate_N, clipped_N = clipped_surrogate(logprobs_N, proximal_N, advantages_N, clip_low, clip_high)
    kl_N = torch.zeros_like(logprobs_N) if reference_N is None else k3(logprobs_N, reference_N)
    loss_N = kl_coef * kl_N - weight_N.clamp(max=importance_cap) * surrogate_N
    return TokenLoss(loss_N, kl_N.detach(), clipped_N, weight_N)
