"""Scalars for TensorBoard, written by rank 0. Names are `train/…` per optimiser step, `round/…` per version."""

from __future__ import annotations

from typing import Any

from services.trainer.learner_api import RoundDone, StepDone

_STEP_FIGURES = (
    "loss", "kl", "grad_norm", "clip_share", "importance_mean", "importance_max", "effective_sample_share",
    "logprob_gap_mean", "tokens", "groups",
)  # fmt: skip


class Scalars:
    """A TensorBoard run; without a folder, nothing."""

    def __init__(self, folder: str | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(folder)

    def step(self, done: StepDone, step: int, learning_rate: float) -> None:
        """One optimiser step; a skipped one counts, its figures are not drawn."""
        if self._writer is None:
            return
        self._writer.add_scalar("train/skipped", float(done.skipped is not None), step)
        if done.skipped is not None:
            return
        for name in _STEP_FIGURES:
            self._writer.add_scalar(f"train/{name}", getattr(done, name), step)
        self._writer.add_scalar("train/tokens_per_s", done.tokens / max(done.seconds, 1e-9), step)
        self._writer.add_scalar("train/learning_rate", learning_rate, step)

    def round(self, done: RoundDone, scalars: dict[str, float]) -> None:
        """One checkpoint, with the trainer's own figures, then to disk."""
        if self._writer is None:
            return
        own = {"seconds": done.seconds, "peak_rss_mb": done.peak_rss_mb}
        for name, value in (scalars | own).items():
            self._writer.add_scalar(f"round/{name}", value, done.target.version)
        self._writer.flush()
