"""All files below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from services.trainer.warmstart.config import FolderSource
from services.trainer.warmstart.files import RawFile
from services.trainer.warmstart.filters import looked_at
from services.trainer.warmstart.licences import LicenceFiles, is_licence_file
from services.trainer.warmstart.sources.patterns import wanted
from shared.kit.errors import SettingsError


def read(source: FolderSource, where: str) -> Iterator[RawFile]:
    """By order of path. Raises `SettingsError` where there is no such folder."""
    if not source.path.is_dir():
        raise SettingsError(f"{where}.path: there is no folder at {source.path}")
    names = sorted(_walk(source.path))
    licences = LicenceFiles(
        {name: (source.path / name).read_bytes for name in names if is_licence_file(name.rpartition("/")[2])}
    )
    for name in names:
        if wanted(name, source.include, source.exclude):
            file = source.path / name
            yield RawFile(
                path=name,
                read=file.read_bytes,
                repo=source.path.name,
                size=file.stat().st_size,
                licence=partial(licences.nearest, name),
            )


def _walk(root: Path) -> Iterator[str]:
    """Files that are no links, relative to the root."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if looked_at(f"{name}/x") and not (here / name).is_symlink()]
        for name in names:
            if not (here / name).is_symlink() and (here / name).is_file():
                yield (here / name).relative_to(root).as_posix()
