"""The figures of one optimiser step: summed up micro-batch by micro-batch, then over the ranks.

In: `TokenLoss` of each real micro-batch and its part of the loss. Out: `Figures`, the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist
from torch import Tensor

from services.trainer.learner.loss import TokenLoss
from services.trainer.learner.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Figures:
    """Means are over credited tokens of the mini-batch; the gap's over those that are not off-policy."""

    loss: float
    """In the aggregation's own unit: already divided."""
    kl: float
    clip_share: float
    masked_share: float
    importance_mean: float
    importance_max: float
    effective_sample_share: float
    """(Σw)² / (n Σw²) (Kish 1965), from untruncated token weights."""
    logprob_gap_mean: float
    """|log π_prox - log μ|, nats."""
    logprob_gap_max: float


NOTHING = Figures(0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Of a step that was not finite."""


@dataclass(slots=True)
class Tally:
    """One rank's sums so far, in double precision."""

    sums: list[float] = field(default_factory=lambda: [0.0] * 8)
    """loss, kl, clipped, masked, w, w², gap, tokens that the gap is of."""
    largest: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """w, gap."""

    def add(self, terms: TokenLoss, part: Tensor, off_policy_N: Tensor | None) -> None:
        """One real micro-batch; `part`: its part of the loss's numerator."""
        weight_N = terms.importance_N.double()
        gap_N = weight_N.log().abs()
        if off_policy_N is not None:
            gap_N = gap_N[~off_policy_N]
        columns = (part.detach(), terms.kl_N, terms.clipped_N, terms.masked_N, weight_N, weight_N.square(), gap_N)
        added = [*(float(column.double().sum()) for column in columns), float(len(gap_N))]
        self.sums = [a + b for a, b in zip(self.sums, added, strict=True)]
        largest = (float(weight_N.max()), float(gap_N.max()) if len(gap_N) else 0.0)
        self.largest = [max(a, b) for a, b in zip(self.largest, largest, strict=True)]

    def gap_mean(self, ranks: Ranks) -> float:
        """Of all ranks' real micro-batches so far, nats (collective)."""
        gap, tokens = ranks.reduce(self.sums[-2:])
        return gap / tokens if tokens else 0.0

    def figures(self, tokens: int, divisor: float, ranks: Ranks) -> Figures:
        """Of the whole mini-batch (collective). `divisor`: the loss's."""
        loss, kl, clipped, masked, weight, squared, gap, gap_tokens = ranks.reduce(self.sums)
        importance_max, gap_max = ranks.reduce(self.largest, dist.ReduceOp.MAX)
        return Figures(
            loss=loss / divisor,
            kl=kl / tokens,
            clip_share=clipped / tokens,
            masked_share=masked / tokens,
            importance_mean=weight / tokens,
            importance_max=importance_max,
            effective_sample_share=weight * weight / (tokens * squared) if squared > 0 else 0.0,
            logprob_gap_mean=gap / gap_tokens if gap_tokens else 0.0,
            logprob_gap_max=gap_max,
        )
