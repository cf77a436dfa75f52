"""The folders below `checkpoint_root`: which one to build on, which leftovers and old ones go.

PostgreSQL decides what is committed; a folder without a committed round is what a killed round left behind.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import structlog

from services.trainer.learner_api import CheckpointRef
from shared.contracts.names import BASE_POLICY_VERSION, CHECKPOINT_FOLDER
from shared.db.models import TrainingRoundRow
from shared.kit.errors import SettingsError

log = structlog.get_logger()

_FOLDER = re.compile(r"^v(\d{6,})(\.tmp)?$")


def base_ref(newest: TrainingRoundRow | None, root: Path) -> CheckpointRef:
    """What the next round builds on. Raises `SettingsError` where its folder is gone."""
    if newest is None or newest.version is None or newest.checkpoint is None:
        return CheckpointRef(version=BASE_POLICY_VERSION, lineage="base", folder=None)
    folder = root / newest.checkpoint
    if not folder.is_dir():
        raise SettingsError(
            f"TABWISE_CHECKPOINT_ROOT: the newest committed checkpoint is missing at {folder}; restore it, "
            "or set TABWISE_CHECKPOINT_ROOT to the folder that has it"
        )
    return CheckpointRef(version=newest.version, lineage=newest.round_id, folder=str(folder.resolve()))


def target_ref(base: CheckpointRef, round_id: str, root: Path) -> CheckpointRef:
    """What the next round makes."""
    version = base.version + 1
    folder = root.resolve() / CHECKPOINT_FOLDER.format(version=version)
    return CheckpointRef(version=version, lineage=round_id, folder=str(folder))


def remove_leftovers(root: Path, committed: Mapping[str, int]) -> list[str]:
    """Delete what an uncommitted round left; returns the names.

    Such a round can only have made the version after the newest. Any other unknown folder belongs to another database:
    raises `SettingsError` rather than delete somebody's training.
    """
    newest = max(committed.values(), default=BASE_POLICY_VERSION)
    unknown = [path for path in _folders(root) if path.name not in committed]
    foreign = [path.name for path in unknown if not path.name.endswith(".tmp") and _version(path) != newest + 1]
    if foreign:
        raise SettingsError(
            f"TABWISE_CHECKPOINT_ROOT: {root} holds {foreign[0]}, which the database knows nothing of; "
            "use an empty folder, or set TABWISE_DATABASE_URL to the database that it belongs to"
        )
    for path in unknown:
        shutil.rmtree(path)
        log.info("leftover of an uncommitted round removed", folder=path.name)
    return [path.name for path in unknown]


def remove_old(root: Path, committed: Mapping[str, int], *, keep: int, newest_uploaded: int | None) -> list[str]:
    """Delete committed folders beyond the newest `keep`, but none newer than what the publisher has stored.

    (The publisher goes straight to the newest: versions below one that it has stored are never asked for again.)
    """
    spared = set(sorted(committed.values())[-keep:])
    old = [
        path
        for path in _folders(root)
        if path.name in committed
        and committed[path.name] not in spared
        and newest_uploaded is not None
        and committed[path.name] <= newest_uploaded
    ]
    for path in old:
        shutil.rmtree(path)
    return [path.name for path in old]


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and _FOLDER.match(path.name))


def _version(path: Path) -> int:
    found = _FOLDER.match(path.name)
    return int(found.group(1)) if found else -1
