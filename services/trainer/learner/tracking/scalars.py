"""What is drawn, and its names: `train/…` per optimiser step, `round/…` per version. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.trainer.learner_api import NON_FINITE, RoundDone, StepDone

_GAP_FIGURES = ("logprob_gap_mean", "logprob_gap_max", "importance_mean", "importance_max", "effective_sample_share")
_STEP_FIGURES = ("loss", "kl", "grad_norm", "clip_share", "masked_share", *_GAP_FIGURES, "tokens", "groups")


def of_step(done: StepDone, learning_rate: float) -> dict[str, float]:
    """One optimiser step; of a skipped one only why: nothing, or the gap between engine and learner."""
    figures = {"train/skipped": float(done.skipped is not None)}
    figures |= {f"train/{name}": float(getattr(done, name)) for name in _drawn(done)}
    if done.skipped is None:
        figures["train/tokens_per_s"] = done.tokens / max(done.seconds, 1e-9)
        figures["train/learning_rate"] = learning_rate
    return figures


def of_round(done: RoundDone, steps: Sequence[StepDone], scalars: Mapping[str, float]) -> dict[str, float]:
    """One checkpoint, with the trainer's own figures."""
    own = {"seconds": done.seconds, "peak_rss_mb": done.peak_rss_mb, **gap_of_round(steps)}
    return {f"round/{name}": float(value) for name, value in {**scalars, **own}.items()}


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
