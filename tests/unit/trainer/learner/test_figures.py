"""What is measured of a step, by hand; and what of it is drawn."""

# torch is only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from services.trainer.learner.figures import Tally
from services.trainer.learner.loss import TokenLoss
from services.trainer.learner.ranks import Ranks
from services.trainer.learner.tracking.scalars import gap_of_round
from services.trainer.learner_api import NON_FINITE, Skipped, StepDone

ALONE = Ranks(0, 1, torch.device("cpu"), None)


def terms(ratios: list[float], masked: list[bool] | None = None) -> TokenLoss:
    count = len(ratios)
    none = torch.zeros(count, dtype=torch.bool)
    weights: Tensor = tensor(ratios, dtype=torch.float64)
    return TokenLoss(torch.ones(count), torch.full((count,), 0.5), none, weights, tensor(masked) if masked else none)


def test_a_step_by_hand() -> None:
    """Two micro-batches with ratios 1, 2 and 0.5: Σw = 3.5, Σw² = 5.25, gaps 0, ln 2, ln 2."""
    tally = Tally()
    tally.add(terms([1.0, 2.0], [False, True]), tensor(4.0), None)
    tally.add(terms([0.5]), tensor(2.0), None)
    figures = tally.figures(tokens=3, divisor=12.0, ranks=ALONE)

    assert figures.loss == pytest.approx(0.5)
    assert figures.kl == pytest.approx(0.5)
    assert figures.masked_share == pytest.approx(1 / 3)
    assert figures.importance_mean == pytest.approx(3.5 / 3)
    assert figures.importance_max == 2.0
    assert figures.effective_sample_share == pytest.approx(3.5**2 / (3 * 5.25))
    assert figures.logprob_gap_mean == pytest.approx(2 * math.log(2) / 3)
    assert figures.logprob_gap_max == pytest.approx(math.log(2))
    assert tally.gap_mean(ALONE) == figures.logprob_gap_mean


def test_too_old_samples_do_not_count_in_the_gap() -> None:
    tally = Tally()
    tally.add(terms([2.0, 64.0]), tensor(0.0), tensor([False, True]))
    assert tally.gap_mean(ALONE) == pytest.approx(math.log(2))
    tally = Tally()
    tally.add(terms([64.0]), tensor(0.0), tensor([True]))
    assert tally.gap_mean(ALONE) == 0.0
    assert tally.figures(1, 1.0, ALONE).importance_max == 64.0


def step(tokens: int, gap: float, largest: float, skipped: Skipped | None = None) -> StepDone:
    return StepDone(
        minibatch=0, groups=1, tokens=tokens, loss=0.0, kl=0.0, grad_norm=0.0, clip_share=0.0, importance_mean=1.0,
        importance_max=1.0, effective_sample_share=1.0, logprob_gap_mean=gap, logprob_gap_max=largest, seconds=0.1,
        skipped=skipped,
    )  # fmt: skip


def test_the_gap_of_a_round_is_of_all_steps_that_have_one() -> None:
    steps = [step(10, 0.1, 0.3), step(30, 0.5, 2.0, "logprob_gap"), step(10, 0.0, 0.0, NON_FINITE)]
    assert gap_of_round(steps) == pytest.approx(
        {"logprob_gap_mean": 0.4, "logprob_gap_max": 2.0, "effective_sample_share": 1.0}
    )
    assert gap_of_round([step(10, 0.0, 0.0, NON_FINITE)]) == {}
