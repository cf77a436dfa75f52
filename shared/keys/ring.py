"""Bearer keys. Only their SHA-256 is kept in memory; looking one up compares digests, not secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Self

from shared.keys.key import Key
from shared.kit.errors import SettingsError
from shared.web.errors import ApiError


class KeyRing:
    """All valid keys."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self._by_digest = dict(keys)

    @classmethod
    def parse(cls, api_keys: str) -> Self:
        """From the setting `TABWISE_API_KEYS`: `secret` or `secret:project`, separated by commas.

        Raises `SettingsError` when there is no key at all.
        """
        keys: dict[str, Key] = {}
        for item in filter(None, (part.strip() for part in api_keys.split(","))):
            secret, _, project = item.partition(":")
            digest = _digest(secret)
            keys[digest] = Key(f"key-{digest[:10]}", project or None)
        if not keys:
            raise SettingsError("no API key is configured: set TABWISE_API_KEYS to `secret[:project]`")
        return cls(keys)

    def authenticate(self, authorization: str | None, api_key: str | None = None) -> Key:
        """The key of `Authorization: Bearer …` (or of an `api-key` header). Raises a 401 `ApiError`."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            secret = api_key or ""
        key = self._by_digest.get(_digest(secret.strip()))
        if key is None:
            raise ApiError(
                401,
                "invalid_api_key",
                "missing or unknown API key: send `Authorization: Bearer <key>` with a key of this server",
                type_="authentication_error",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return key


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
