"""One folder per version in the store, its manifest written last: a version without a manifest is not there.

    v000018/config.json  v000018/model.safetensors  …  v000018/manifest.json

Nothing is held in memory whole; every byte that is fetched is checked against the manifest.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import obstore
from obstore.exceptions import NotFoundError
from obstore.store import ObjectStore
from pydantic import ValidationError

from shared.contracts.checkpoint import Manifest, ManifestFile, Probe
from shared.contracts.names import CHECKPOINT_FOLDER, MANIFEST_FILE
from shared.kit.errors import InvalidMessage
from shared.storage.errors import translated

_CHUNK = 4 * 1024 * 1024
_MANIFEST = re.compile(r"^v(\d{6,})/manifest\.json$")


class CheckpointStore:
    """Checkpoints by version. Raises `TemporaryError` (the store is away) or `InvalidMessage` (bytes are wrong)."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(
        self, folder: Path, names: Iterable[str], *, version: int, parent: int, probe: Probe, created_at: datetime
    ) -> Manifest:
        """Upload these files of `folder` and then the manifest. The same content again changes nothing."""
        files = [describe(folder, name) for name in sorted(names)]
        there = self.manifest(version)
        if there is not None and there.files == files and there.probe == probe:
            return there
        if there is not None:  # other bytes under this version: not there until they are replaced
            self._delete(_key(version, MANIFEST_FILE))
        for file in files:
            key = _key(version, file.name)
            with translated(key):
                obstore.put(self._store, key, folder / file.name)
        manifest = Manifest(version=version, parent=parent, created_at=created_at, files=files, probe=probe)
        key = _key(version, MANIFEST_FILE)
        with translated(key):
            obstore.put(self._store, key, manifest.model_dump_json().encode())
        return manifest

    def manifest(self, version: int) -> Manifest | None:
        """None where the version is not there, or only half."""
        key = _key(version, MANIFEST_FILE)
        with translated(key):
            try:
                body = obstore.get(self._store, key).bytes().to_bytes()
            except (NotFoundError, FileNotFoundError):
                return None
        try:
            return Manifest.model_validate_json(body)
        except ValidationError as error:
            raise InvalidMessage(f"{key} is no manifest ({error.error_count()} errors)") from error

    def fetch(self, version: int, target: Path) -> Manifest:
        """Make `target` hold exactly that version, verified; a whole folder that is there already is kept.

        Written beside it and renamed, so that `target` is never half. Raises `InvalidMessage` naming the bad file.
        """
        manifest = self.manifest(version)
        if manifest is None:
            raise InvalidMessage(f"{_key(version, MANIFEST_FILE)} is not in the storage")
        if holds(target, manifest):
            return manifest
        draft = target.with_name(target.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            for file in manifest.files:
                self._fetch_file(version, file, draft)
        except BaseException:
            shutil.rmtree(draft)
            raise
        (draft / MANIFEST_FILE).write_text(manifest.model_dump_json())
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
        return manifest

    def versions(self) -> list[int]:
        """All whole versions, oldest first."""
        with translated("the list of versions"):
            keys = [meta["path"] for page in obstore.list(self._store) for meta in page]
        return sorted(int(found.group(1)) for key in keys if (found := _MANIFEST.match(key)))

    def exists(self, version: int) -> bool:
        """Whether the version is there, whole."""
        key = _key(version, MANIFEST_FILE)
        with translated(key):
            try:
                obstore.head(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return False
        return True

    def delete(self, version: int) -> None:
        """The manifest first, so that what is left of a half deletion is not there either."""
        self._delete(_key(version, MANIFEST_FILE))
        prefix = CHECKPOINT_FOLDER.format(version=version)
        with translated(prefix):
            keys = [meta["path"] for page in obstore.list(self._store, prefix=prefix) for meta in page]
        for key in keys:
            self._delete(key)

    def _fetch_file(self, version: int, file: ManifestFile, folder: Path) -> None:
        key = _key(version, file.name)
        digest, size = hashlib.sha256(), 0
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as written:
            for chunk in self._chunks(key):
                written.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        if size != file.size or digest.hexdigest() != file.sha256:
            raise InvalidMessage(f"{key} in the storage is not what its manifest says ({size} of {file.size} bytes)")

    def _chunks(self, key: str) -> Iterator[bytes]:
        with translated(key):
            for chunk in obstore.get(self._store, key).stream(min_chunk_size=_CHUNK):
                yield bytes(chunk)

    def _delete(self, key: str) -> None:
        with translated(key):
            try:
                obstore.delete(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return


def describe(folder: Path, name: str) -> ManifestFile:
    """Size and SHA-256 of a file, read in pieces."""
    digest, size = hashlib.sha256(), 0
    try:
        with (folder / name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError as error:
        raise InvalidMessage(f"{folder.name} has no {name}") from error
    return ManifestFile(name=name, size=size, sha256=digest.hexdigest())


def holds(folder: Path, manifest: Manifest) -> bool:
    """Whether every file of the manifest is in `folder`, bytes checked."""
    if not all((folder / file.name).is_file() for file in manifest.files):
        return False
    return all(describe(folder, file.name) == file for file in manifest.files)


def _key(version: int, name: str) -> str:
    return f"{CHECKPOINT_FOLDER.format(version=version)}/{name}"
