"""The keys file: who has a key, its digest and scopes, never a secret. Written by the command line, read by services.

Written whole, by a temporary name and a rename, so that a reader never sees half of it; one writer at a time.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from filelock import FileLock, Timeout
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_serializer,
    model_validator,
)

from shared.keys.key import Key, Scope
from shared.kit.errors import InvalidMessage, TemporaryError

PREFIX = "tabwise"
SECRET_PATTERN = r"tabwise_[0-9a-f]{8}_[0-9a-f]{64}"
"""What a key looks like, for secret scanners."""
PROJECT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_LOCK_TIMEOUT_S = 10.0
_ID_BYTES, _SECRET_BYTES = 4, 32


class StoredKey(BaseModel):
    """One key as it is kept. Ids are never given out twice: a revoked key stays in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,40}$")]
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    project: Annotated[str, StringConstraints(pattern=PROJECT_PATTERN)] | None = None
    scopes: frozenset[Scope] = Field(min_length=1)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None

    @field_serializer("scopes")
    def _sorted(self, scopes: frozenset[Scope]) -> list[Scope]:
        return sorted(scopes)

    def key(self) -> Key:
        """As services see it."""
        return Key(self.id, self.project, self.name, self.scopes)

    def state(self, now: datetime) -> Literal["valid", "expired", "revoked"]:
        """Whether it opens anything at `now`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


class Contents(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    keys: tuple[StoredKey, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> Self:
        if len({key.id for key in self.keys}) < len(self.keys):
            raise ValueError("two keys have the same id")
        return self


class KeyFile:
    """The file at `path`; none there means: no keys yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[StoredKey, ...]:
        """Oldest first. Raises `InvalidMessage` where it is no keys file, `OSError` where it cannot be read."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        try:
            return Contents.model_validate_json(content).keys
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidMessage(f"{self.path} is no keys file ({where or 'file'}: {first['msg']})") from None

    def add(
        self,
        name: str,
        project: str | None,
        scopes: frozenset[Scope],
        now: datetime,
        expires_at: datetime | None = None,
    ) -> tuple[StoredKey, str]:
        """A new key and its secret, which is kept nowhere."""
        with self._locked():
            keys = self.read()
            key_id = _new_id({key.id for key in keys})
            secret = f"{PREFIX}_{key_id}_{secrets.token_hex(_SECRET_BYTES)}"
            new = StoredKey(
                id=key_id,
                name=name,
                project=project,
                scopes=scopes,
                sha256=digest_of(secret),
                created_at=now,
                expires_at=expires_at,
            )
            self._write((*keys, new))
        return new, secret

    def revoke(self, key_id: str, now: datetime) -> StoredKey:
        """The key opens nothing from now on. Raises `InvalidMessage` where there is none of this id."""
        with self._locked():
            keys = {key.id: key for key in self.read()}
            if key_id not in keys:
                raise InvalidMessage(f"there is no key {key_id!r} in {self.path}")
            before = keys[key_id]
            keys[key_id] = before.model_copy(update={"revoked_at": before.revoked_at or now})
            self._write(tuple(keys.values()))
        return keys[key_id]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{self.path}.lock", timeout=_LOCK_TIMEOUT_S, mode=0o600)
        try:
            with lock:
                yield
        except Timeout:
            raise TemporaryError(f"another command has been changing {self.path} for {_LOCK_TIMEOUT_S:.0f} s") from None

    def _write(self, keys: tuple[StoredKey, ...]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(Contents(keys=keys).model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._keep_owner(temporary)
        temporary.replace(self.path)

    def _keep_owner(self, temporary: Path) -> None:
        """An administrator's command must not take the file away from the service that reads it."""
        if os.geteuid() == 0:
            model = self.path if self.path.exists() else self.path.parent
            os.chown(temporary, model.stat().st_uid, model.stat().st_gid)


def digest_of(secret: str) -> str:
    """Plain SHA-256: right for 256 random bits, which nobody can guess; see docs/decisions/0008."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _new_id(taken: set[str]) -> str:
    while True:
        key_id = secrets.token_hex(_ID_BYTES)
        if key_id not in taken:
            return key_id
