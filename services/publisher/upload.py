"""A committed folder into the storage, and a stored version into the serving folder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from shared.contracts.checkpoint import Manifest, Probe
from shared.contracts.names import CHECKPOINT_FOLDER, PROBE_FILE
from shared.db.models import CheckpointRow, TrainingRoundRow
from shared.kit.errors import InvalidMessage, SettingsError
from shared.storage import CheckpointStore


def upload(store: CheckpointStore, round_: TrainingRoundRow, root: Path, now: datetime) -> CheckpointRow:
    """Store what a round committed, without the learner's own state below it (`deepspeed/` …).

    Raises `InvalidMessage` where the folder is not what the contract says, `SettingsError` where it is not there.
    """
    assert round_.version is not None
    assert round_.checkpoint is not None
    folder = root / round_.checkpoint
    if not folder.is_dir():
        raise SettingsError(f"TABWISE_CHECKPOINT_ROOT: the committed checkpoint {folder} is not there")
    probe = read_probe(folder, round_.version)
    names = [path.name for path in folder.iterdir() if path.is_file()]
    if not any(name.endswith(".safetensors") for name in names):
        raise InvalidMessage(f"{folder.name} has no *.safetensors file")
    manifest = store.put(
        folder, names, version=round_.version, parent=round_.parent_version, probe=probe, created_at=round_.committed_at
    )
    return row_of(manifest, now)


def read_probe(folder: Path, version: int) -> Probe:
    """The learner's figures, checked for their shape."""
    try:
        probe = Probe.model_validate_json((folder / PROBE_FILE).read_bytes())
    except FileNotFoundError as error:
        raise InvalidMessage(f"{folder.name} has no {PROBE_FILE}") from error
    except ValidationError as error:
        raise InvalidMessage(f"{folder.name}/{PROBE_FILE} is not valid ({error.error_count()} errors)") from error
    if probe.version != version or len(probe.logprobs) != len(probe.token_ids) - 1 or not probe.logprobs:
        raise InvalidMessage(f"{folder.name}/{PROBE_FILE} is not the probe of version {version}")
    return probe


def row_of(manifest: Manifest, now: datetime) -> CheckpointRow:
    """A stored version as its row."""
    return CheckpointRow(
        version=manifest.version,
        parent_version=manifest.parent,
        uri=CHECKPOINT_FOLDER.format(version=manifest.version),
        manifest_sha256=hashlib.sha256(manifest.model_dump_json().encode()).hexdigest(),
        size_bytes=sum(file.size for file in manifest.files),
        status="uploaded",
        error=None,
        uploaded_at=now,
        live_at=None,
    )


def failed_row(round_: TrainingRoundRow, reason: str, now: datetime) -> CheckpointRow:
    """A version that could not be stored, and never will be."""
    assert round_.version is not None
    return CheckpointRow(
        version=round_.version,
        parent_version=round_.parent_version,
        uri="",
        manifest_sha256="",
        size_bytes=0,
        status="failed",
        error=reason,
        uploaded_at=now,
        live_at=None,
    )


class ServingFolder:
    """The versions that engines can load: `serving_root/vNNNNNN`, each verified when it was put there."""

    def __init__(self, store: CheckpointStore, root: Path, engine_root: str | None) -> None:
        self._store = store
        self._root = root.resolve()
        self._engine_root = engine_root or str(self._root)

    def fetch(self, version: int) -> Manifest:
        """Make sure that it is there, every byte as uploaded."""
        self._root.mkdir(parents=True, exist_ok=True)
        return self._store.fetch(version, self._folder(version))

    def path_for_engine(self, version: int) -> str:
        """As the engine sees it."""
        return f"{self._engine_root}/{CHECKPOINT_FOLDER.format(version=version)}"

    def prune(self, keep: int, spared: Collection[int]) -> list[int]:
        """Delete all but the newest `keep` and those spared; returns the versions."""
        if not self._root.is_dir():
            return []
        found = {int(path.name[1:]): path for path in self._root.glob("v*") if path.name[1:].isdecimal()}
        old = sorted(found.keys() - set(sorted(found)[-keep:]) - set(spared))
        for version in old:
            shutil.rmtree(found[version])
        return old

    def _folder(self, version: int) -> Path:
        return self._root / CHECKPOINT_FOLDER.format(version=version)
