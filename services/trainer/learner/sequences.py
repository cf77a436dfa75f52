"""Which sample each credited token belongs to: what sums and means over a sequence need.

In: the lengths of a micro-batch's samples, whose credited tokens lie one after another. N tokens, S samples.
A sample is never split over micro-batches (`packing`), so that its sum is whole here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sequences:
    """`index_N[n]` is the sample of token n; `lengths_S` are credited tokens per sample, all at least 1."""

    index_N: Tensor
    lengths_S: Tensor

    @property
    def lengths_N(self) -> Tensor:
        """For each token the length of its sample."""
        return self.lengths_S[self.index_N]

    def total(self, values_N: Tensor) -> Tensor:
        """For each token the sum of `values_N` over its sample, [N]."""
        sums_S = torch.zeros(len(self.lengths_S), dtype=values_N.dtype, device=values_N.device)
        return sums_S.index_add(0, self.index_N, values_N)[self.index_N]

    def mean(self, values_N: Tensor) -> Tensor:
        """For each token the mean of `values_N` over its sample, [N]."""
        return self.total(values_N) / self.lengths_N


def sequences_of(lengths: Sequence[int], device: torch.device) -> Sequences:
    """Samples of these lengths, one after another."""
    lengths_S = torch.tensor(lengths, device=device)
    return Sequences(torch.repeat_interleave(lengths_S), lengths_S)
