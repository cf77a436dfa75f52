"""All keys that a service accepts: those of `TABWISE_API_KEYS` and those of `TABWISE_KEYS_FILE` together.

Only SHA-256 digests are kept and compared, never secrets. The file is looked at again at most once a second, and read
when it has changed, so that a new or revoked key counts without a restart.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog

from shared.keys.key import Key, Scope
from shared.keys.store import KeyFile, StoredKey, digest_of
from shared.kit.errors import InvalidMessage, SettingsError
from shared.web.errors import ApiError

log = structlog.get_logger()

CHECK_EVERY_S = 1.0
HOW_TO_MAKE_ONE = "`make keys NEW=name`, or `python -m shared.keys create name` on the server"

_Stamp = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: str
    key: Key
    revoked: bool = False
    expires_at_s: float | None = None


class KeyRing:
    """All valid keys. `on_file_error` is called once for each state of the file that cannot be used."""

    def __init__(
        self,
        fixed: Mapping[str, Key],
        file: KeyFile | None = None,
        *,
        on_file_error: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fixed = {digest: _Entry(digest, key) for digest, key in fixed.items()}
        self._file = file
        self._on_file_error = on_file_error
        self._clock, self._monotonic = clock, monotonic
        self._entries = self._fixed
        self._stamp: _Stamp = None
        self._check_at_s = 0.0
        if file is not None:
            self._load_first(file)

    @classmethod
    def open(cls, api_keys: str, keys_file: str = "", *, on_file_error: Callable[[], object] = lambda: None) -> Self:
        """From the settings `TABWISE_API_KEYS` (`secret` or `secret:project`, separated by commas; all scopes) and
        `TABWISE_KEYS_FILE`. Raises `SettingsError` where neither is set, or the file is broken.

        A file that is not there yet has no keys: every request is answered 401 with how to make one.
        """
        fixed: dict[str, Key] = {}
        for item in filter(None, (part.strip() for part in api_keys.split(","))):
            secret, _, project = item.partition(":")
            digest = digest_of(secret)
            fixed[digest] = Key(f"key-{digest[:10]}", project or None)
        if not fixed and not keys_file:
            raise SettingsError(
                "no API key is configured: set TABWISE_KEYS_FILE to a file of keys "
                f"(then {HOW_TO_MAKE_ONE}), or TABWISE_API_KEYS to `secret[:project]`"
            )
        file = KeyFile(Path(keys_file).expanduser()) if keys_file else None
        return cls(fixed, file, on_file_error=on_file_error)

    def authenticate(self, authorization: str | None, api_key: str | None, scope: Scope, *or_one_of: Scope) -> Key:
        """The key of `Authorization: Bearer …` (or of an `api-key` header).

        Raises `ApiError`: 401 where it is none of ours, 403 where it has none of the scopes.
        """
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            secret = api_key or ""
        if self._file is not None and self._monotonic() >= self._check_at_s:
            self._refresh(self._file)
        digest = digest_of(secret.strip())
        entry = self._entries.get(digest)
        if entry is None or not hmac.compare_digest(entry.digest, digest):
            raise _unknown(anybody=bool(self._entries))
        self._refuse_ended(entry)
        entry.key.require(scope, *or_one_of)
        return entry.key

    def names(self) -> dict[str, str]:
        """What the operator called each key of the file, by id; those that have ended included."""
        if self._file is not None and self._monotonic() >= self._check_at_s:
            self._refresh(self._file)
        return {entry.key.key_id: entry.key.name for entry in self._entries.values() if entry.key.name}

    def _refuse_ended(self, entry: _Entry) -> None:
        if entry.revoked:
            raise _refused("this API key was revoked: ask the server's operator for a new one")
        if entry.expires_at_s is not None and entry.expires_at_s <= self._clock():
            raise _refused("this API key has expired: ask the server's operator for a new one")

    def _load_first(self, file: KeyFile) -> None:
        try:
            self._load(file)
        except (InvalidMessage, OSError) as error:
            raise SettingsError(f"TABWISE_KEYS_FILE: {_reason(error)}") from None
        if not self._entries:
            log.warning("no keys yet, every request is refused", setting="TABWISE_KEYS_FILE")

    def _refresh(self, file: KeyFile) -> None:
        """A file that cannot be used, or is gone, leaves the last good keys in force."""
        self._check_at_s = self._monotonic() + CHECK_EVERY_S
        stamp = _stamp(file.path)
        if stamp == self._stamp:
            return
        try:
            if stamp is None:
                raise InvalidMessage(f"{file.path} is gone")
            self._load(file)
        except (InvalidMessage, OSError) as error:
            self._stamp = stamp
            self._on_file_error()
            log.error("keys file cannot be used, the last good keys stay", reason=_reason(error))
        else:
            log.info("keys file read", keys=len(self._entries) - len(self._fixed))

    def _load(self, file: KeyFile) -> None:
        stamp = _stamp(file.path)
        self._entries = {key.sha256: _entry(key) for key in file.read()} | self._fixed
        self._stamp = stamp
        self._check_at_s = self._monotonic() + CHECK_EVERY_S


def _entry(stored: StoredKey) -> _Entry:
    expires_at_s = None if stored.expires_at is None else stored.expires_at.timestamp()
    return _Entry(stored.sha256, stored.key(), stored.revoked_at is not None, expires_at_s)


def _stamp(path: Path) -> _Stamp:
    """What changes whenever the file does. Time alone is too coarse, and a rename brings another inode."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _unknown(*, anybody: bool) -> ApiError:
    if not anybody:
        return _refused(f"this server has no API key yet: make one with {HOW_TO_MAKE_ONE}")
    return _refused("missing or unknown API key: send `Authorization: Bearer <key>` with a key of this server")


def _refused(message: str) -> ApiError:
    return ApiError(
        401, "invalid_api_key", message, type_="authentication_error", headers={"WWW-Authenticate": "Bearer"}
    )


def _reason(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
