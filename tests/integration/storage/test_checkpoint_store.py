"""One suite for both kinds of store: a local folder and S3 (moto's server, over HTTP)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import ObjectStore
from pydantic import SecretStr

from deploy.local.embedded import free_port
from shared.contracts.checkpoint import Probe
from shared.kit.errors import InvalidMessage, TemporaryError
from shared.storage import CheckpointStore, StorageConfig, open_store

PROBE = Probe(version=1, token_ids=[1, 2, 3], logprobs=[-0.5, -0.25])
NOW = datetime(2026, 11, 20, tzinfo=UTC)
NAMES = ["config.json", "model.safetensors", "empty.txt"]
BIG = os.urandom(11 * 1024 * 1024)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port())
    server.start()
    endpoint = f"http://127.0.0.1:{server._port}"
    yield endpoint
    server.stop()


@pytest.fixture(params=["local", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(StorageConfig(url=(tmp_path / "storage").as_uri()))
    endpoint = request.getfixturevalue("s3_endpoint")
    bucket = f"bucket-{os.urandom(4).hex()}"
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=bucket)
    config = StorageConfig(
        url=f"s3://{bucket}/team/checkpoints",
        endpoint_url=endpoint,
        access_key_id="k",
        secret_access_key=SecretStr("s"),
        region="us-east-1",
    )
    return open_store(config)


@pytest.fixture
def store(objects: ObjectStore) -> CheckpointStore:
    return CheckpointStore(objects)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "v000001"
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "model.safetensors").write_bytes(BIG)
    (source / "empty.txt").touch()
    (source / "deepspeed").mkdir()
    (source / "deepspeed" / "state.pt").write_text("secret")
    return source


@pytest.fixture
def put(store: CheckpointStore, folder: Path) -> Callable[..., object]:
    def _put(version: int = 1) -> object:
        return store.put(folder, NAMES, version=version, parent=version - 1, probe=PROBE, created_at=NOW)

    return _put


def test_what_was_put_is_fetched(store: CheckpointStore, put: Callable[..., object], tmp_path: Path) -> None:
    manifest = put()
    target = tmp_path / "serving" / "v000001"
    assert store.fetch(1, target) == manifest == store.manifest(1)
    assert (target / "model.safetensors").read_bytes() == BIG
    assert sorted(path.name for path in target.iterdir()) == sorted([*NAMES, "manifest.json"])
    assert not (tmp_path / "serving" / "v000001.tmp").exists()


def test_versions_are_listed_and_deleted(store: CheckpointStore, put: Callable[..., object]) -> None:
    assert store.versions() == []
    for version in (2, 1, 1234567):
        put(version)
    assert store.versions() == [1, 2, 1234567]
    store.delete(2)
    store.delete(2)
    assert store.versions() == [1, 1234567]
    assert (store.exists(1), store.exists(2)) == (True, False)


def test_a_half_upload_is_not_there(store: CheckpointStore, objects: ObjectStore, tmp_path: Path) -> None:
    obstore.put(objects, "v000001/model.safetensors", b"half")
    assert store.versions() == []
    assert store.manifest(1) is None
    assert not store.exists(1)
    with pytest.raises(InvalidMessage, match=r"v000001/manifest\.json is not in the storage"):
        store.fetch(1, tmp_path / "target")


def test_uploading_again_changes_nothing(
    store: CheckpointStore, objects: ObjectStore, put: Callable[..., object]
) -> None:
    first = put()
    before = obstore.head(objects, "v000001/model.safetensors")
    assert put() == first
    assert obstore.head(objects, "v000001/model.safetensors")["last_modified"] == before["last_modified"]


def test_other_bytes_under_a_version_replace_it_whole(
    store: CheckpointStore, put: Callable[..., object], folder: Path, tmp_path: Path
) -> None:
    put()
    store.fetch(1, tmp_path / "target")
    (folder / "config.json").write_text('{"other": 1}')
    put()
    store.fetch(1, tmp_path / "target")
    assert (tmp_path / "target" / "config.json").read_text() == '{"other": 1}'


@pytest.mark.parametrize("bad", [b"x" * len(BIG), b"short"])
def test_wrong_bytes_in_the_storage_name_the_file(
    store: CheckpointStore, objects: ObjectStore, put: Callable[..., object], tmp_path: Path, bad: bytes
) -> None:
    put()
    obstore.put(objects, "v000001/model.safetensors", bad)
    with pytest.raises(InvalidMessage, match=r"v000001/model\.safetensors in the storage is not what its manifest"):
        store.fetch(1, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_missing_file_in_the_storage_names_it(
    store: CheckpointStore, objects: ObjectStore, put: Callable[..., object], tmp_path: Path
) -> None:
    put()
    obstore.delete(objects, "v000001/config.json")
    with pytest.raises(InvalidMessage, match=r"v000001/config\.json is not in the storage"):
        store.fetch(1, tmp_path / "target")


def test_a_damaged_folder_is_fetched_again(store: CheckpointStore, put: Callable[..., object], tmp_path: Path) -> None:
    put()
    target = tmp_path / "target"
    store.fetch(1, target)
    inode = (target / "model.safetensors").stat().st_ino
    store.fetch(1, target)
    assert (target / "model.safetensors").stat().st_ino == inode, "a whole folder is kept"
    (target / "model.safetensors").write_bytes(b"torn")
    store.fetch(1, target)
    assert (target / "model.safetensors").read_bytes() == BIG


def test_a_manifest_that_is_none(store: CheckpointStore, objects: ObjectStore) -> None:
    obstore.put(objects, "v000001/manifest.json", b"{")
    with pytest.raises(InvalidMessage, match="no manifest"):
        store.manifest(1)


def test_a_missing_source_file_is_named(store: CheckpointStore, folder: Path) -> None:
    with pytest.raises(InvalidMessage, match=r"v000001 has no probe\.json"):
        store.put(folder, ["probe.json"], version=1, parent=0, probe=PROBE, created_at=NOW)


def test_s3_that_is_away() -> None:
    config = StorageConfig(
        url="s3://bucket/prefix",
        endpoint_url=f"http://127.0.0.1:{free_port()}",
        access_key_id="k",
        secret_access_key=SecretStr("s"),
        region="us-east-1",
    )
    with pytest.raises(TemporaryError, match="does not answer"):
        CheckpointStore(open_store(config)).manifest(1)
