"""Versions and labels, and settings that come from the usual S3 variables."""

from __future__ import annotations

import pytest

from services.publisher.replicas import label_of, version_of
from services.publisher.settings import PublisherSettings
from shared.kit.errors import SettingsError


@pytest.mark.parametrize(("version", "label"), [(0, "default"), (1, "1"), (1234567, "1234567")])
def test_a_version_and_its_label(version: int, label: str) -> None:
    assert label_of(version) == label
    assert version_of(label) == version


@pytest.mark.parametrize("label", ["", "v1", "-1", "1.0", "base"])
def test_a_label_of_nobody(label: str) -> None:
    assert version_of(label) is None


def test_s3_settings_come_from_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_STORAGE_URL", "s3://bucket/prefix")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws")
    monkeypatch.setenv("TABWISE_S3_SECRET_ACCESS_KEY", "ours")
    storage = PublisherSettings.load().storage
    assert storage.endpoint_url == "http://store:9000"
    assert storage.secret_access_key is not None
    assert storage.secret_access_key.get_secret_value() == "ours"


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_PROBE_TOLERANCE", "0")
    with pytest.raises(SettingsError, match=r"^TABWISE_PROBE_TOLERANCE: "):
        PublisherSettings.load()


def test_engines_are_split() -> None:
    assert PublisherSettings.load().model_copy(update={"engine_urls": " http://a:1/, http://b:2 ,"}).engines == [
        "http://a:1",
        "http://b:2",
    ]
