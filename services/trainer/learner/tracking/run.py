"""The trackers of a run, opened by name. In: steps and rounds. Out: figures, handed over in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from services.trainer.learner.tracking import scalars
from services.trainer.learner.tracking.background import Background
from services.trainer.learner.tracking.tracker import Open, Run, public_config
from services.trainer.learner_api import LearnerConfig, RoundDone, StepDone, TrackerName
from shared.kit.errors import SettingsError

_CLOSE_S = 4.0


def _tensorboard(config: LearnerConfig) -> Open | None:
    from services.trainer.learner.tracking.to_tensorboard import opener

    return opener(config.tensorboard_dir) if config.tensorboard_dir else None


def _wandb(config: LearnerConfig) -> Open | None:
    from services.trainer.learner.tracking.to_wandb import open_wandb

    return open_wandb


def _mlflow(config: LearnerConfig) -> Open | None:
    from services.trainer.learner.tracking.to_mlflow import open_mlflow

    return open_mlflow


_KNOWN: Final[dict[TrackerName, Callable[[LearnerConfig], Open | None]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


class Tracking:
    """What the learner talks to; on other ranks than the first, nobody."""

    def __init__(self, config: LearnerConfig, *, first: bool = True) -> None:
        """Raises `SettingsError` where a tracker's package is missing."""
        self._trackers: dict[TrackerName, Background] = {}
        if not first:
            return
        run = Run(config.run_name or _now(), Path(config.run_dir).absolute(), public_config(config))
        for name in dict.fromkeys(config.trackers):
            if opener := _opener(name, config):
                self._trackers[name] = Background(name, opener, run)

    def step(self, done: StepDone, step: int, learning_rate: float) -> None:
        """One optimiser step."""
        figures = scalars.of_step(done, learning_rate)
        for tracker in self._trackers.values():
            tracker.put(figures, step)

    def round(self, done: RoundDone, steps: Sequence[StepDone], own: dict[str, float]) -> None:
        """One checkpoint, with the trainer's own figures."""
        figures = scalars.of_round(done, steps, own)
        for tracker in self._trackers.values():
            tracker.put(figures, done.target.version)

    def take_lost(self) -> dict[str, int]:
        """Entries that trackers lost since the last call, by tracker; those without loss left out."""
        return {name: lost for name, tracker in self._trackers.items() if (lost := tracker.take_lost())}

    def close(self, within_s: float = _CLOSE_S) -> None:
        """Hand over what waits, all at once; a tracker that takes longer is left behind."""
        deadline_s = time.monotonic() + within_s
        for tracker in self._trackers.values():
            tracker.end()
        for tracker in self._trackers.values():
            tracker.join(deadline_s - time.monotonic())


def _opener(name: TrackerName, config: LearnerConfig) -> Open | None:
    try:
        return _KNOWN[name](config)
    except ImportError as error:
        raise SettingsError(f"TABWISE_TRACKERS: {name} is not installed ({error.name})") from error


def _now() -> str:
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
