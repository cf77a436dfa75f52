"""How far a run has come, on disk. Written whole or not at all, after the checkpoint that it names.

Killed at any moment, the next start finds the state before the round or after it: a round that was not noted is done
again, with the same prompts, and its checkpoint folder is written over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from services.trainer.learner_api import CheckpointRef
from services.trainer.tracker import Value
from services.trainer.warmstart.config import WarmStartConfig
from shared.contracts.names import BASE_POLICY_VERSION
from shared.kit.errors import SettingsError

STATE_FILE: Final = "state.json"
BASE: Final = CheckpointRef(version=BASE_POLICY_VERSION, lineage="base", folder=None)
_DATA_KEYS: Final = {"model", "seed", "sources", "filters", "split", "holes", "prompts"}
"""What the samples depend on; a run keeps to it. All others may change from one start to the next."""


class Evaluated(BaseModel):
    """Held-out figures after so many rounds."""

    model_config = ConfigDict(frozen=True)

    round: int
    version: int
    figures: dict[str, float]


class RunState(BaseModel):
    """Of one run. `round`: how many are done."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    data: dict[str, Any]
    """The configuration that the samples were made by."""
    round: int = 0
    checkpoint: CheckpointRef = BASE
    """What the next round builds on."""
    evaluations: list[Evaluated] = []
    tracker: dict[str, tuple[float, float]] = {}
    """Bucket → mean and weight."""
    in_vain: int = 0
    """Rounds in a row that changed nothing."""

    @property
    def values(self) -> dict[str, Value]:
        """The value tracker."""
        return {bucket: Value(mean, weight) for bucket, (mean, weight) in self.tracker.items()}

    def save(self, output: Path) -> None:
        """Replace what is there."""
        write_whole(output / STATE_FILE, self.model_dump_json(indent=1))


def load_state(config: WarmStartConfig) -> RunState | None:
    """None where no run has begun. Raises `SettingsError` where it is another configuration's, or damaged."""
    file = config.output / STATE_FILE
    if not file.exists():
        return None
    try:
        state = RunState.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise SettingsError(f"output: {file} is damaged; remove it, or start anew with --restart") from error
    now = data_of(config)
    changed = [key for key in sorted(now) if now[key] != state.data.get(key)]
    if changed:
        raise SettingsError(
            f"{changed[0]}: is not what the run in {config.output} began with; set it back, name another output, "
            "or start anew with --restart"
        )
    folder = state.checkpoint.folder
    if folder is not None and not Path(folder).is_dir():
        raise SettingsError(f"output: the newest checkpoint {folder} is gone; start anew with --restart")
    return state


def data_of(config: WarmStartConfig) -> dict[str, Any]:
    """What the samples depend on, as JSON."""
    told = config.model_dump(mode="json", include=_DATA_KEYS)
    return told | {"max_completion_tokens": config.training.max_completion_tokens}


def write_whole(file: Path, text: str) -> None:
    """All of it or nothing, and on disk when this returns."""
    draft = file.with_name(f"{file.name}.tmp")
    with draft.open("w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    draft.replace(file)
    _flush(file.parent)


@contextmanager
def only_run(output: Path) -> Iterator[None]:
    """Nobody else works in this folder until the end of the block, or of the process."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"output: another warm start is running in {output}; name another one") from None
        yield


def forget(output: Path) -> None:
    """Remove what an earlier run left, and nothing else."""
    for path in [*output.glob("v[0-9]*"), *(output / name for name in ("samples", "final", "tensorboard", "runs"))]:
        shutil.rmtree(path, ignore_errors=True)
    for name in (STATE_FILE, "log.jsonl", "counts.json"):
        (output / name).unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
