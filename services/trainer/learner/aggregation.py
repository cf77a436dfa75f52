"""From the loss of each token to the loss of a mini-batch: a sum over tokens, divided by one number.

The number is known before the first micro-batch runs and is the same on every rank, so that packing, micro-batches and
ranks do not change the gradient. N credited tokens of a micro-batch; all have one shape, `Aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.trainer.learner.sequences import Sequences


@dataclass(frozen=True, slots=True)
class MinibatchSize:
    """Of the whole mini-batch, on all ranks."""

    tokens: int
    """Credited."""
    sequences: int
    """Samples."""


class Aggregation(Protocol):
    """`Σ over micro-batches of part / divisor` is the loss of the mini-batch."""

    def part(self, loss_N: Tensor, sequences: Sequences) -> Tensor:
        """A micro-batch's share of the numerator, a scalar."""

    def divisor(self, size: MinibatchSize) -> float:
        """The denominator."""


class TokenMean:
    """Σ_i Σ_t l_it / Σ_i |y_i|: each token weighs the same. DAPO (Yu et al. 2025, arXiv 2503.14476), eq. 8 and 12."""

    def part(self, loss_N: Tensor, sequences: Sequences) -> Tensor:
        """Σ l."""
        return loss_N.sum()

    def divisor(self, size: MinibatchSize) -> float:
        """Credited tokens."""
        return size.tokens


class SequenceMean:
    """1/n Σ_i 1/|y_i| Σ_t l_it: each sample weighs the same. GRPO (Shao et al. 2024, DeepSeekMath), eq. 3."""

    def part(self, loss_N: Tensor, sequences: Sequences) -> Tensor:
        """Σ l / |y|."""
        return (loss_N / sequences.lengths_N).sum()

    def divisor(self, size: MinibatchSize) -> float:
        """Samples."""
        return size.sequences


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """1/n Σ_i 1/L Σ_t l_it with a constant L: the gradient of a token depends on no sample's length.

    Dr. GRPO (Liu et al. 2025, arXiv 2503.20783), section 3.2 and its listing 1, where L is the generation budget.
    """

    length: int
    """L, tokens: the most that a completion may have."""

    def part(self, loss_N: Tensor, sequences: Sequences) -> Tensor:
        """Σ l."""
        return loss_N.sum()

    def divisor(self, size: MinibatchSize) -> float:
        """n · L."""
        return size.sequences * self.length


AGGREGATIONS: Mapping[str, Callable[[int], Aggregation]] = {
    "token_mean": lambda length: TokenMean(),
    "sequence_mean": lambda length: SequenceMean(),
    "dr_grpo": ConstantLength,
}
"""By the value of `TABWISE_AGGREGATION`; made with the most tokens that a completion may have."""
