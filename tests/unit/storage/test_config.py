"""Which URLs are understood, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import LocalStore, S3Store

from shared.kit.errors import SettingsError
from shared.storage import StorageConfig, open_store


@pytest.mark.parametrize("url", ["", "/tmp/x", "file://host/x", "s3://", "ftp://host/x", "file:relative"])
def test_a_wrong_url_names_the_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="TABWISE_STORAGE_URL"):
        open_store(StorageConfig(url=url))


def test_a_local_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "c"
    store = open_store(StorageConfig(url=folder.as_uri()))
    assert isinstance(store, LocalStore)
    assert folder.is_dir()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot write"):
        open_store(StorageConfig(url=(tmp_path / "file" / "sub").as_uri()))


def test_s3_takes_the_prefix() -> None:
    store = open_store(StorageConfig(url="s3://bucket/some/prefix/", endpoint_url="http://store:9000", region="x"))
    assert isinstance(store, S3Store)
    assert store.prefix == "some/prefix"
    assert store.config["endpoint"] == "http://store:9000"


def test_the_secret_is_not_shown() -> None:
    assert "hush" not in repr(StorageConfig(url="s3://b", secret_access_key="hush"))
