"""From known rewards to advantages. Pure: values in, values out.

In: for each group of a mini-batch the rewards that are known (unknown ones are masked out before) and the value that
the tracker predicts for its bucket. Out: one advantage per known reward, in units of reward or of a deviation of it.
All estimators have one shape, `Estimator`, and a name in `ESTIMATORS`; a further one is a function and a line there.

A group whose own rewards cannot tell better from worse (fewer than two, or all equal) has no group baseline. The
estimators that live on one (`grpo`, `dr_grpo`, `rloo`) then measure it against the tracker instead of giving it
silently zero. Where the tracker agrees with the reward too, the advantage is zero; whoever calls counts it (`is_zero`).
Notation: r rewards of one group, G of them; V the tracker's value; B all rewards of the mini-batch. Deviations are a
population's (divided by G, not G - 1), with `EPSILON` added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Protocol

EPSILON = 1e-6
"""Added to every standard deviation; also what counts as equal."""
MIN_SCALE = 0.1
"""Least deviation, in units of reward, that the tracker's residuals are divided by: a mini-batch that the tracker
predicts to a hundredth tells little, and must not be blown up to advantages of one."""


@dataclass(frozen=True, slots=True)
class GroupRewards:
    """Known rewards of one prompt and what the tracker expects there."""

    rewards_G: tuple[float, ...]
    value: float

    @property
    def has_baseline(self) -> bool:
        """Whether the rewards differ among themselves."""
        return len(self.rewards_G) > 1 and max(self.rewards_G) - min(self.rewards_G) > EPSILON


class Estimator(Protocol):
    """From one mini-batch's groups to advantages."""

    def __call__(self, batch: Sequence[GroupRewards], /) -> list[list[float]]:
        """One finite advantage per reward, group by group, in order; a group without rewards gets none."""


def grpo(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = (r_i - mean(r)) / std(r). Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), section 4.1.2 (outcome
    supervision): the advantage in the objective of eq. 3. Its KL term, eq. 4, is the learner's (`learner.kl.k3`).

    Without a group baseline: `tracker`'s, normalised over the mini-batch.
    """
    alone = tracker(batch)
    return [_standardised(group.rewards_G) if group.has_baseline else alone[i] for i, group in enumerate(batch)]


def dr_grpo(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = r_i - mean(r). Liu et al. 2025, Understanding R1-Zero-Like Training (arXiv 2503.20783), section 3.2:
    GRPO without the division by std(r). Its other half, no division by a sample's length, is `aggregation=dr_grpo`.

    Without a group baseline: r_i - V, in the same unit: dividing it by a deviation would make lone completions weigh
    several times as much as groups.
    """
    return [
        [reward - fmean(group.rewards_G) for reward in group.rewards_G] if group.has_baseline else _residuals(group)
        for group in batch
    ]


def rloo(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = r_i - mean(r without r_i) = G / (G - 1) · (r_i - mean(r)). Kool et al. 2019, Buy 4 REINFORCE Samples, Get a
    Baseline for Free!; for language models Ahmadian et al. 2024, Back to Basics (arXiv 2402.14740), sec. 2.3.

    Without a group baseline: r_i - V, in the same unit.
    """
    return [_leave_one_out(group.rewards_G) if group.has_baseline else _residuals(group) for group in batch]


def reinforce_pp(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = (r_i - mean(B)) / std(B). Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), global advantage normalisation,
    in the variant without a group baseline. Its KL penalty inside the reward is left to the loss (`kl_estimator`).

    Needs no group; a mini-batch of equal rewards, or of one, has no deviation and falls back to `tracker`.
    """
    everything = [reward for group in batch for reward in group.rewards_G]
    if len(everything) < 2 or max(everything) - min(everything) <= EPSILON:
        return tracker(batch)
    mean, deviation = fmean(everything), pstdev(everything)
    return [[(reward - mean) / (deviation + EPSILON) for reward in group.rewards_G] for group in batch]


def tracker(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = (r_i - V) / sqrt(mean over B of (r - V)²). Xu and Ding 2025, Single-stream Policy Optimization
    (arXiv 2509.13232): a persistent value tracker, normalised over the mini-batch.

    The mean is not subtracted: V already is the baseline, and a mini-batch of failures must stay negative.
    """
    residuals = [_residuals(group) for group in batch]
    everything = [value for group in residuals for value in group]
    scale = math.sqrt(fmean(value * value for value in everything)) if everything else 0.0
    return [[value / max(scale, MIN_SCALE) for value in group] for group in residuals]


def raw(batch: Sequence[GroupRewards]) -> list[list[float]]:
    """A_i = r_i. REINFORCE (Williams 1992) without a baseline; with the clipped loss, what RLinf runs."""
    return [list(group.rewards_G) for group in batch]


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "tracker": tracker,
    "raw": raw,
}
"""By the value of `TABWISE_ADVANTAGE`."""


def is_zero(advantage: float) -> bool:
    """Whether it moves nothing."""
    return abs(advantage) <= EPSILON


def _residuals(group: GroupRewards) -> list[float]:
    return [reward - group.value for reward in group.rewards_G]


def _standardised(rewards_G: tuple[float, ...]) -> list[float]:
    mean, deviation = fmean(rewards_G), pstdev(rewards_G)
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards_G]


def _leave_one_out(rewards_G: tuple[float, ...]) -> list[float]:
    total, others = sum(rewards_G), len(rewards_G) - 1
    return [reward - (total - reward) / others for reward in rewards_G]
