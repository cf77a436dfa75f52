"""The result of a warm start as the next version of a running deployment: engines load it, online learning goes on.

In: the run's newest checkpoint, optimiser state and all; the deployment's settings (TABWISE_…). Out: a folder below its
checkpoint root, a row of `training_rounds`, and word to the publisher. It is a round like any other, that no
experience went into, committed under the same lock and in the same order: folder first, then one transaction.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, Final

from celery import Celery
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from services.trainer import checkpoints, repository
from services.trainer.celery_app import tell_publisher
from services.trainer.checks import check_database
from services.trainer.learner_api import CheckpointRef
from services.trainer.settings import TrainerSettings
from services.trainer.warmstart.config import WarmStartConfig
from services.trainer.warmstart.state import RunState
from services.trainer.warmstart.tokens import model_file
from shared.contracts.names import PROBE_FILE
from shared.db.engine import make_engine, unit_of_work
from shared.db.models import TrainingRoundRow
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import SettingsError, TemporaryError

LINEAGE_FILE: Final = "lineage.json"
WAIT_S: Final = 300.0
"""How long the trainer's own round may take before we give up waiting for our turn."""
_POLL_S = 0.5
_MUST_AGREE: Final = {
    "ranks": "learner_ranks", "zero_stage": "zero_stage", "dtype": "learner_dtype", "adapter": "adapter",
    "lora_rank": "lora_rank", "lora_alpha": "lora_alpha", "lora_targets": "lora_targets",
}  # fmt: skip
"""Field of `lineage.json` → setting: the shape in which the optimiser's state was saved."""
_SAME_MODEL: Final = ("config.json", "tokenizer.json")


def publish_result(config: WarmStartConfig, state: RunState, *, replace: bool) -> int:
    """The version that it became. Done again for the same checkpoint, it only tells the publisher again.

    Raises `SettingsError` where it does not belong to this deployment, `TemporaryError` where the trainer is busy.
    """
    settings = TrainerSettings.load()
    check_database(settings.database_url)
    check_fits(config, state, settings)
    database = make_engine(settings.database_url)
    try:
        version = Publication(config, state, settings, database, replace=replace).commit()
    except DBAPIError as error:
        raise TemporaryError(f"TABWISE_DATABASE_URL: the database went away ({type(error.orig).__name__})") from error
    finally:
        database.dispose()
    tell_publisher(Celery("tabwise-warmstart", broker=settings.broker_url, set_as_current=False))
    return version


def check_fits(config: WarmStartConfig, state: RunState, settings: TrainerSettings) -> None:
    """Whether the deployment's learner could go on from this checkpoint. Raises `SettingsError`."""
    folder = checkpoint_folder(state)
    saved = json.loads((folder / LINEAGE_FILE).read_text())
    for field, name in _MUST_AGREE.items():
        now = getattr(settings, name)
        if saved.get(field) is not None and saved[field] != now:
            raise SettingsError(
                f"TABWISE_{name.upper()}={now}, but the warm start trained with {saved[field]}, and the online learner "
                "could not go on from it; set one like the other, or serve `final` as TABWISE_MODEL_PATH"
            )
    for name in _SAME_MODEL:
        if (folder / name).read_bytes() != model_file(settings.model_path, name).read_bytes():
            raise SettingsError(
                f"TABWISE_MODEL_PATH: {settings.model_path} has another {name} than the model that the warm start "
                "trained; a deployment takes versions of its own model only"
            )
    if settings.adapter == "lora" and not same_weights(config.model, settings.model_path):
        raise SettingsError(
            f"TABWISE_MODEL_PATH: an adapter belongs to the weights that it was trained on, {config.model}, and not to "
            f"those of {settings.model_path}; serve `final` as TABWISE_MODEL_PATH"
        )


def checkpoint_folder(state: RunState) -> Path:
    """Of the run's newest checkpoint."""
    if state.checkpoint.folder is None:
        raise SettingsError("training: no round has changed the model, so there is nothing to publish")
    return Path(state.checkpoint.folder)


class Publication:
    """One attempt."""

    def __init__(
        self,
        config: WarmStartConfig,
        state: RunState,
        settings: TrainerSettings,
        database: Engine,
        *,
        replace: bool,
        wait_s: float = WAIT_S,
        clock: Clock = utc_now,
    ) -> None:
        self._config, self._state, self._settings = config, state, settings
        self._database, self._replace, self._wait_s, self._clock = database, replace, wait_s, clock
        self._root = Path(settings.checkpoint_root)

    def commit(self) -> int:
        """Wait for our turn, then see `publish_result`."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            with repository.only_trainer(self._database) as mine:
                if mine:
                    return self._commit()
            if time.monotonic() > deadline_s:
                raise TemporaryError(f"the trainer has been in a round for {self._wait_s:.0f} s; try again later")
            time.sleep(_POLL_S)

    def _commit(self) -> int:
        with unit_of_work(self._database) as session:
            before = repository.round_of_checkpoint(session, self._state.checkpoint.lineage)
            newest = repository.newest_round(session)
            committed = repository.committed_folders(session)
        if before is not None and before.version is not None:
            return before.version
        self._root.mkdir(parents=True, exist_ok=True)
        newest_ref = checkpoints.base_ref(newest, self._root)
        base = self._base(newest_ref)
        checkpoints.remove_leftovers(self._root, committed)
        target = checkpoints.target_ref(newest_ref, str(uuid.uuid4()), self._root)
        copy_as(checkpoint_folder(self._state), target, base)
        with unit_of_work(self._database) as session:
            repository.insert_round(session, self._row(target, base))
        return target.version

    def _base(self, newest: CheckpointRef) -> CheckpointRef:
        """What the warm start began with, which should be what the deployment has now."""
        begun = began_with(self._config.model, newest, self._settings.model_path)
        if begun or self._replace:
            return newest if begun else CheckpointRef(version=0, lineage="base", folder=None)
        raise SettingsError(
            f"the deployment is at version {newest.version}, and the warm start did not begin there: publishing it "
            f"would lose what versions 1 to {newest.version} learned. Begin with `model: {newest.folder}`, or say "
            "--replace (they stay in the store, for a rollback)"
        )

    def _row(self, target: CheckpointRef, base: CheckpointRef) -> TrainingRoundRow:
        state, now = self._state, self._clock()
        return TrainingRoundRow(
            round_id=target.lineage,
            version=target.version,
            parent_version=base.version,
            checkpoint=Path(target.folder or "").name,
            started_at=now,
            committed_at=now,
            minibatches=0,
            trained=0,
            stats={
                "warmstart": {
                    "checkpoint": state.checkpoint.lineage,
                    "run_id": state.run_id,
                    "rounds": state.round,
                    "held_out": [done.model_dump() for done in (state.evaluations[0], state.evaluations[-1])],
                }
            },
        )


def began_with(model: str, newest: CheckpointRef, own_model: str) -> bool:
    """Whether a warm start that began with `model` began with the deployment's newest version (0: its own model)."""
    if newest.version == 0:
        return same_weights(model, own_model)
    file = Path(model) / LINEAGE_FILE
    if not file.is_file():
        return False
    found = json.loads(file.read_text())
    return (found.get("version"), found.get("lineage")) == (newest.version, newest.lineage)


def same_weights(model: str, other: str) -> bool:
    """Byte by byte, where both are folders; else by name."""
    if model == other or not (Path(model).is_dir() and Path(other).is_dir()):
        return model == other
    names = [sorted(file.name for file in Path(folder).glob("*.safetensors")) for folder in (model, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(model, other, names[0], shallow=False)[1:])


def copy_as(source: Path, target: CheckpointRef, base: CheckpointRef) -> None:
    """Copy a checkpoint folder to `target`, whole or not at all, with that version's lineage and probe."""
    assert target.folder is not None
    final = Path(target.folder)
    draft = final.with_name(f"{final.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    parent = {"parent": base.version, "parent_lineage": base.lineage}
    _change(draft / LINEAGE_FILE, version=target.version, lineage=target.lineage, **parent)
    _change(draft / PROBE_FILE, version=target.version)
    for path in [*draft.rglob("*"), draft]:
        _flush(path)
    draft.rename(final)
    _flush(final.parent)


def _change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
