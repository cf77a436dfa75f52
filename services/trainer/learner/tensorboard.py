"""Scalars for TensorBoard, written by rank 0. Names are `train/…` per optimiser step, `round/…` per version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.trainer.learner_api import NON_FINITE, RoundDone, StepDone

_GAP_FIGURES = ("logprob_gap_mean", "logprob_gap_max", "importance_mean", "importance_max", "effective_sample_share")
_STEP_FIGURES = ("loss", "kl", "grad_norm", "clip_share", "masked_share", *_GAP_FIGURES, "tokens", "groups")


class Scalars:
    """A TensorBoard run; without a folder, nothing."""

    def __init__(self, folder: str | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(folder)

    def step(self, done: StepDone, step: int, learning_rate: float) -> None:
        """One optimiser step; of a skipped one only why: nothing, or the gap between engine and learner."""
        if self._writer is None:
            return
        self._writer.add_scalar("train/skipped", float(done.skipped is not None), step)
        for name in _drawn(done):
            self._writer.add_scalar(f"train/{name}", getattr(done, name), step)
        if done.skipped is not None:
            return
        self._writer.add_scalar("train/tokens_per_s", done.tokens / max(done.seconds, 1e-9), step)
        self._writer.add_scalar("train/learning_rate", learning_rate, step)

    def round(self, done: RoundDone, steps: Sequence[StepDone], scalars: dict[str, float]) -> None:
        """One checkpoint, with the trainer's own figures, then to disk."""
        if self._writer is None:
            return
        own = {"seconds": done.seconds, "peak_rss_mb": done.peak_rss_mb, **gap_of_round(steps)}
        for name, value in (scalars | own).items():
            self._writer.add_scalar(f"round/{name}", value, done.target.version)
        self._writer.flush()


def gap_of_round(steps: Sequence[StepDone]) -> dict[str, float]:
    """How far engine and learner are apart over a round's steps that have figures; empty where none has."""
    measured = [step for step in steps if step.skipped != NON_FINITE]
    tokens = sum(step.tokens for step in measured)
    if not tokens:
        return {}
    return {
        "logprob_gap_mean": sum(step.logprob_gap_mean * step.tokens for step in measured) / tokens,
        "logprob_gap_max": max(step.logprob_gap_max for step in measured),
        "effective_sample_share": sum(step.effective_sample_share * step.tokens for step in measured) / tokens,
    }


def _drawn(done: StepDone) -> tuple[str, ...]:
    if done.skipped == NON_FINITE:
        return ()
    return _STEP_FIGURES if done.skipped is None else _GAP_FIGURES
