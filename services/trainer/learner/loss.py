"""The loss, as pure functions of tensors. N credited tokens of a micro-batch, one sample after another.

Three policies are told apart (decoupled PPO; Hilton, Cobbe & Schulman 2021, "Batch size-invariance for policy
optimization", section 3):
- *behaviour* μ, which sampled the tokens in the engine, one or more versions ago and with the engine's own kernels;
- *proximal* π_prox, the learner's policy when the round began, around which the trust region lies;
- *current* π_θ, which is being changed.
Why so, and not one ratio to the behaviour policy: docs/decisions/0005-learner.md. All formulas: docs/learning.md.

A loss is put together from four parts, each behind an interface and chosen by name: the surrogate (here), the
correction for who sampled (`importance`), the KL estimate (`kl`), and the sum over tokens (`aggregation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from services.trainer.learner.aggregation import AGGREGATIONS
from services.trainer.learner.importance import CORRECTIONS, ratio
from services.trainer.learner.kl import KL_ESTIMATORS
from services.trainer.learner.sequences import Sequences
from services.trainer.learner_api import LearnerConfig


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the loss sees of a micro-batch. Logprobs are natural logs, at the sampling temperature."""

    logprobs_N: Tensor
    """Of the current policy; alone has a gradient."""
    behaviour_N: Tensor
    advantages_N: Tensor
    sequences: Sequences
    proximal_N: Tensor | None = None
    """None: the current policy is the proximal one (first step of a round), so the ratio is exactly 1."""
    reference_N: Tensor | None = None
    """None: no KL term."""
    off_policy_N: Tensor | None = None
    """True where the sample is older than `max_staleness` allows; None: nowhere."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Per credited token. `loss_N` alone has a gradient."""

    loss_N: Tensor
    kl_N: Tensor
    clipped_N: Tensor
    importance_N: Tensor
    """π_prox / μ before the cap."""
    masked_N: Tensor
    """Where the correction gave weight 0: nothing of the reward is learnt there."""


class Surrogate(Protocol):
    """The objective of the trust region, to be maximised."""

    def __call__(
        self, logprobs_N: Tensor, proximal_N: Tensor, advantages_N: Tensor, low: float, high: float, /
    ) -> tuple[Tensor, Tensor]:
        """Values [N] in units of advantage, and where the clip decided [N]: there the gradient is zero."""


def clip(
    logprobs_N: Tensor, proximal_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """`min(r A, clip(r, 1 - ε, 1 + ε) A)` with r = π_θ / π_prox and ε = clip_low; clip_high is not used.

    PPO (Schulman et al. 2017, arXiv 1707.06347), eq. 7, per token.
    """
    return clipped_surrogate(logprobs_N, proximal_N, advantages_N, clip_low, clip_low)


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


SURROGATES: Mapping[str, Surrogate] = {"clip": clip, "clip_higher": clipped_surrogate}
"""By the value of `TABWISE_LOSS`."""


class Objective:
    """The loss that the settings name, token by token: `kl_coef · KL - weight · surrogate`.

    The caller sums it with `aggregation`. In the first step of a round, with `token_truncate`, the gradient is
    `- min(w, cap) · A · ∇log π_θ`, plus the KL term's, which no importance weight touches.
    """

    def __init__(self, config: LearnerConfig) -> None:
        self._config = config
        self._surrogate = SURROGATES[config.loss]
        self._correction = CORRECTIONS[config.importance]
        self._kl = KL_ESTIMATORS[config.kl_estimator]
        self.aggregation = AGGREGATIONS[config.aggregation](config.max_completion_tokens)

    def __call__(self, tokens: Tokens) -> TokenLoss:
        """See the class."""
        config, now_N = self._config, tokens.logprobs_N
        proximal_N = now_N.detach() if tokens.proximal_N is None else tokens.proximal_N
        surrogate_N, clipped_N = self._surrogate(
            now_N, proximal_N, tokens.advantages_N, config.clip_low, config.clip_high
        )
        kl_N = torch.zeros_like(now_N) if tokens.reference_N is None else self._kl(now_N, tokens.reference_N)
        weight_N = self._weight(tokens, proximal_N)
        loss_N = config.kl_coef * kl_N - weight_N * surrogate_N
        importance_N = ratio(proximal_N - tokens.behaviour_N)
        return TokenLoss(loss_N, kl_N.detach(), clipped_N, importance_N, weight_N == 0)

    def _weight(self, tokens: Tokens, proximal_N: Tensor) -> Tensor:
        """The correction. Too old a sample never weighs more than that, its own ratio, or `stale_importance_cap`.

        With a cap of 1 that is the truncation ρ̄ = 1 of V-trace (Espeholt et al. 2018, IMPALA, arXiv 1802.01561, eq. 1):
        what today's policy would hardly write any more fades, and nothing is blown up to make good for it.
        """
        log_ratio_N = (proximal_N - tokens.behaviour_N).detach()
        weight_N = self._correction(log_ratio_N, tokens.sequences, self._config.importance_cap)
        if tokens.off_policy_N is None:
            return weight_N
        capped_N = torch.minimum(weight_N, ratio(log_ratio_N)).clamp(max=self._config.stale_importance_cap)
        return torch.where(tokens.off_policy_N, capped_N, weight_N)
