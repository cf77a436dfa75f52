"""TensorBoard: files in a folder (`TABWISE_TENSORBOARD_DIR`)."""

from __future__ import annotations

from collections.abc import Mapping

from torch.utils.tensorboard import SummaryWriter

from services.trainer.learner.tracking.tracker import Open, Run


class TensorBoard:
    """A `Tracker`. On disk after each round."""

    def __init__(self, folder: str) -> None:
        self._writer = SummaryWriter(folder)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        if any(name.startswith("round/") for name in figures):
            self._writer.flush()

    def close(self) -> None:
        """See `Tracker`."""
        self._writer.close()


def opener(folder: str) -> Open:
    """For the folder; the run's own name and settings are not needed there."""

    def open_tensorboard(run: Run) -> TensorBoard:
        return TensorBoard(folder)

    return open_tensorboard
