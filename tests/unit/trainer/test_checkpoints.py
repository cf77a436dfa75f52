"""Folders below the checkpoint root."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.trainer.checkpoints import remove_leftovers, remove_old
from shared.kit.errors import SettingsError


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir()


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_leftovers_go_and_the_rest_stays(tmp_path: Path) -> None:
    make(tmp_path, "v000001", "v000002", "v000003", "v000003.tmp", "tensorboard")
    assert remove_leftovers(tmp_path, {"v000001": 1, "v000002": 2}) == ["v000003", "v000003.tmp"]
    assert names(tmp_path) == ["tensorboard", "v000001", "v000002"]


def test_another_databases_checkpoints_are_never_deleted(tmp_path: Path) -> None:
    make(tmp_path, "v000001", "v000002")
    with pytest.raises(SettingsError, match="TABWISE_CHECKPOINT_ROOT"):
        remove_leftovers(tmp_path, {})
    assert names(tmp_path) == ["v000001", "v000002"]


@pytest.mark.parametrize(
    ("uploaded", "left"),
    [
        (None, ["v000001", "v000002", "v000003", "v000004"]),
        (1, ["v000002", "v000003", "v000004"]),
        (4, ["v000003", "v000004"]),
    ],
)
def test_old_ones_go_once_the_publisher_is_past_them(tmp_path: Path, uploaded: int | None, left: list[str]) -> None:
    committed = {f"v{number:06d}": number for number in range(1, 5)}
    make(tmp_path, *committed)
    remove_old(tmp_path, committed, keep=2, newest_uploaded=uploaded)
    assert names(tmp_path) == left
