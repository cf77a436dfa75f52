"""Settings of the stack, and the environment that follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.config import StackConfig
from services.engine.settings import EngineSettings
from services.gateway.settings import GatewaySettings
from services.ingest.settings import IngestSettings
from services.trainer.settings import TrainerSettings
from shared.keys import KeyRing
from shared.kit.errors import SettingsError


@pytest.fixture(autouse=True)
def no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TABWISE_DATA_DIR", "TABWISE_MODEL_PATH", "TABWISE_API_KEYS", "TABWISE_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_key_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    config = StackConfig.load(data_dir=tmp_path)
    assert config.key == StackConfig.load(data_dir=tmp_path).key
    assert (tmp_path / "api_key").stat().st_mode & 0o077 == 0
    KeyRing.open(config.keys()).authenticate(f"Bearer {config.key}", None, "complete")


def test_the_keys_of_make_keys_are_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for expected, config in [
        (str(tmp_path / "keys.json"), StackConfig.load(data_dir=tmp_path)),
        ("/elsewhere/keys.json", StackConfig.load(data_dir=tmp_path, keys_file="/elsewhere/keys.json")),
    ]:
        assert config.environment()["TABWISE_KEYS_FILE"] == expected
    monkeypatch.setenv("TABWISE_KEYS_FILE", "/elsewhere/keys.json")
    assert StackConfig.isolated(tmp_path).environment()["TABWISE_KEYS_FILE"] == str(tmp_path / "keys.json")


def test_the_editor_gets_the_first_key_without_its_project(tmp_path: Path) -> None:
    config = StackConfig.load(data_dir=tmp_path, api_keys="one:team,two")
    assert (config.key, config.keys()) == ("one", "one:team,two")


def test_isolated_stacks_share_nothing(tmp_path: Path) -> None:
    one, two = (StackConfig.isolated(tmp_path / name) for name in "ab")
    ports = [getattr(config, name) for config in (one, two) for name in StackConfig.ports_by_field()]
    assert len(set(ports[:7])) == 7
    assert one.key != two.key


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_REDIS_PORT", "99999")
    with pytest.raises(SettingsError, match=r"^TABWISE_REDIS_PORT: "):
        StackConfig.load()


def test_every_service_reads_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StackConfig.isolated(tmp_path, extra_environment={"TABWISE_MINIBATCH_SIZE": "7"})
    for name, value in config.environment().items():
        if name.startswith("TABWISE_"):
            monkeypatch.setenv(name, value)
    engine, gateway, ingest, trainer = EngineSettings(), GatewaySettings(), IngestSettings(), TrainerSettings()
    assert gateway.replicas == trainer.engines == [f"http://127.0.0.1:{engine.engine_port}"]
    assert ingest.database_url == trainer.database_url == config.database_url
    assert gateway.redis_url == ingest.redis_url == trainer.redis_url != trainer.broker_url
    assert engine.model_path == trainer.model_path == config.model_path
    assert trainer.minibatch_size == 7
    assert Path(trainer.checkpoint_root).is_relative_to(tmp_path)


def test_the_callers_variables_pass_and_its_ports_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_LEARNING_RATE", "0.5")
    monkeypatch.setenv("TABWISE_GATEWAY_PORT", "1")
    environment = StackConfig.isolated(tmp_path).environment()
    assert environment["TABWISE_LEARNING_RATE"] == "0.5"
    assert environment["TABWISE_GATEWAY_PORT"] != "1"


def test_erase_removes_the_data(tmp_path: Path) -> None:
    config = StackConfig.isolated(tmp_path / "var")
    config.postgres.folder.mkdir(parents=True)
    (config.root / "logs").mkdir(parents=True)
    config.erase()
    assert not config.root.exists()
    assert not config.postgres.folder.exists()
