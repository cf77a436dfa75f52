"""What happened, on disk: `output/log.jsonl`, a JSON object a line, and TensorBoard scalars. No source code in either.

Below `output/tensorboard/` the learner writes a run of its own (`learner`: loss, KL, rewards); here is the other one
(`held_out`), for the figures that no request carries.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

LOG_FILE: Final = "log.jsonl"
TENSORBOARD: Final = "tensorboard"
LEARNERS_RUN: Final = f"{TENSORBOARD}/learner"
RUNS: Final = "runs"
"""What Weights & Biases and MLflow keep, where the learner's `trackers` name them."""


class RunLog:
    """Of one run; goes on where an earlier process stopped."""

    def __init__(self, output: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # half a second, and needs no torch

        self._file = output / LOG_FILE
        self._writer = EventFileWriter(str(output / TENSORBOARD / "held_out"))

    def line(self, event: str, **facts: Any) -> None:
        """One line, at once on its way to disk."""
        row = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **facts}
        with self._file.open("a") as file:
            file.write(json.dumps(_finite(row)) + "\n")

    def scalars(self, figures: Mapping[str, float], step: int) -> None:
        """For TensorBoard, as `held_out/…`."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=f"held_out/{name}", simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=datetime.now(UTC).timestamp(), step=step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        """Flush, and let go of the file."""
        self._writer.close()


def _finite(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
