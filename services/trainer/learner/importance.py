"""Weights that correct for who sampled the tokens: the behaviour policy μ in the engine, not the learner's policy.

In: log(π_prox / μ) of each credited token, in nats, and which sample it belongs to. Out: one weight per token, without
unit, at least 0, never with a gradient. Notation: w_t = π_prox(y_t) / μ(y_t); y a sample of |y| credited tokens; C the
cap. All have one shape, `Correction`, and a name in `CORRECTIONS`.

Sequence weights are products over credited tokens: what was sampled behind them gets no gradient and no weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from services.trainer.learner.sequences import Sequences

_LOG_RATIO_LIMIT = 30.0
"""exp(30) ≈ 1e13: reported importance weights stay finite, and the cap applies long before."""


class Correction(Protocol):
    """From log ratios [N] to weights [N]."""

    def __call__(self, log_ratio_N: Tensor, sequences: Sequences, cap: float, /) -> Tensor:
        """`cap` is at least what a sample on policy has, 1, or it weighs that down too."""


def ratio(log_ratio_N: Tensor) -> Tensor:
    """w from log w, detached, finite even for tokens that one policy holds to be impossible. Not truncated."""
    return torch.exp(log_ratio_N.detach().clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))


def uncorrected(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """1: whatever sampled the tokens counts as the learner's own policy. Biased by as much as it was not."""
    return torch.ones_like(log_ratio_N)


def token_truncate(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """min(w_t, C). Truncated importance sampling (Ionides 2008, "Truncated Importance Sampling") token by
    token; between engine and learner: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training".
    """
    return ratio(log_ratio_N).clamp(max=cap)


def sequence_truncate(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """min(Π_t w_t, C), the same for all tokens of a sample: its true importance weight, truncated.

    Liu, Li et al. 2025, "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch"
    (sequence-level TIS). Without bias but for the cap; its variance grows with the length.
    """
    return ratio(sequences.total(log_ratio_N)).clamp(max=cap)


def geometric_truncate(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """min((Π_t w_t)^(1/|y|), C): the geometric mean of a sample's token ratios, truncated.

    The length-normalised ratio s_i of GSPO (Zheng et al. 2025, arXiv 2507.18071, eq. 7), taken here between π_prox and
    μ. No importance weight in the strict sense: it trades bias for a variance that does not grow with the length.
    """
    return ratio(sequences.mean(log_ratio_N)).clamp(max=cap)


def sequence_mask(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """W = Π_t w_t where W ≤ C, else 0: a sample beyond the bound is dropped, not cut down to it.

    Liu, Li et al. 2025 (as above; masked importance sampling, MIS). What is dropped stays in the loss's divisor.
    """
    weight_N = ratio(sequences.total(log_ratio_N))
    return weight_N * (weight_N <= cap)


def geometric_mask(log_ratio_N: Tensor, sequences: Sequences, cap: float) -> Tensor:
    """min(w_t, C) in samples whose geometric mean of ratios lies in [1/C, C], else 0.

    Liu, Li et al. 2025 (as above; rejection by the geometric mean), with `token_truncate` for what is kept.
    """
    mean_N = ratio(sequences.mean(log_ratio_N))
    return token_truncate(log_ratio_N, sequences, cap) * ((mean_N <= cap) & (mean_N >= 1.0 / cap))


CORRECTIONS: Mapping[str, Correction] = {
    "none": uncorrected,
    "token_truncate": token_truncate,
    "sequence_truncate": sequence_truncate,
    "geometric_truncate": geometric_truncate,
    "sequence_mask": sequence_mask,
    "geometric_mask": geometric_mask,
}
"""By the value of `TABWISE_IMPORTANCE`."""
