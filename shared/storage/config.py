"""From settings to a store: which service, which folder or bucket, with which key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store
from pydantic import BaseModel, ConfigDict, SecretStr

from shared.kit.errors import SettingsError

if TYPE_CHECKING:  # obstore has these for type checkers only
    from obstore.store import ClientConfig, RetryConfig, S3Config

_RETRIES: RetryConfig = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


class StorageConfig(BaseModel):
    """Where checkpoints are kept. What is None, obstore takes from `AWS_*` variables or the machine's role."""

    model_config = ConfigDict(frozen=True)

    url: str
    """`file:///absolute/folder` or `s3://bucket/prefix`."""
    endpoint_url: str | None = None
    """Of an S3-compatible store that is not Amazon's."""
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    region: str | None = None
    read_timeout_s: float = 30.0
    """Longest silence of the store during one request."""


def open_store(config: StorageConfig) -> ObjectStore:
    """The store below which `vNNNNNN/` are; makes a local folder. Raises `SettingsError` for a wrong URL."""
    parts = urlsplit(config.url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return _local(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return _s3(config, parts.netloc, parts.path.strip("/"))
    raise SettingsError(f"TABWISE_STORAGE_URL: expected file:///folder or s3://bucket/prefix, not {config.url!r}")


def _local(folder: Path) -> LocalStore:
    try:
        return LocalStore(folder, mkdir=True, automatic_cleanup=True)
    except (BaseError, OSError) as error:
        raise SettingsError(f"TABWISE_STORAGE_URL: cannot write to the folder {folder}") from error


def _s3(config: StorageConfig, bucket: str, prefix: str) -> S3Store:
    values: S3Config = {}
    if config.endpoint_url:
        values["endpoint"] = config.endpoint_url
    if config.access_key_id:
        values["access_key_id"] = config.access_key_id
    if config.secret_access_key:
        values["secret_access_key"] = config.secret_access_key.get_secret_value()
    if config.region:
        values["region"] = config.region
    client: ClientConfig = {
        "allow_http": (config.endpoint_url or "").startswith("http://"),
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=config.read_timeout_s),
        "timeout": timedelta(hours=1),
    }
    try:
        return S3Store(bucket, prefix=prefix or None, config=values, client_options=client, retry_config=_RETRIES)
    except BaseError as error:
        raise SettingsError("TABWISE_STORAGE_URL: the S3 settings are not usable; see TABWISE_S3_*") from error
