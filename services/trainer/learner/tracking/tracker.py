"""What a tracker can do, and what it is told of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.trainer.learner_api import LearnerConfig

PROJECT = "tabwise"
"""The project (Weights & Biases) or experiment (MLflow) that runs are filed under."""

_PRIVATE = {"model_path", "tensorboard_dir", "run_dir", "run_name", "trackers"}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the learner; after a restart under the same name, the same run."""

    name: str
    folder: Path
    """For what a tracker keeps on disk."""
    config: Mapping[str, Any]
    """How the learner is set: numbers and names. No paths, no secrets: the learner is told none."""


class Tracker(Protocol):
    """May block and may raise anything: it is only called from `background`."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Figures of `train/…` at an optimiser step, or of `round/…` at a version; never of both at once."""

    def close(self) -> None:
        """Hand over what is buffered."""


Open = Callable[[Run], Tracker]
"""Connects; called in the background."""


def public_config(config: LearnerConfig) -> dict[str, Any]:
    """What a tracker may know of the settings; of the model only its name."""
    known = {name: value for name, value in config.model_dump().items() if name not in _PRIVATE}
    return known | {"model": Path(config.model_path).name}
