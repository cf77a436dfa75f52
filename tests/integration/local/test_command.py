"""The command line: each failure before the start is one sentence that names the setting, and a non-zero exit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.config import REPOSITORY, StackConfig


def command(config: StackConfig, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    ports = {f"TABWISE_{name.upper()}": str(getattr(config, name)) for name in StackConfig.ports_by_field()}
    folders = {"TABWISE_DATA_DIR": str(config.root), "TABWISE_MODEL_PATH": config.model_path}
    return subprocess.run(
        [sys.executable, "-m", "deploy.local", *words],
        cwd=REPOSITORY,
        env={**os.environ, **ports, **folders, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of standard error of a command that failed."""
    assert done.returncode == 1, done
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("Tabwise: ")
    return line


def test_a_taken_port(config: StackConfig) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", config.gateway_port))
        other.listen()
        line = sentence(command(config, "up"))
    assert f"port {config.gateway_port}" in line
    assert "set TABWISE_GATEWAY_PORT" in line


def test_two_parts_on_one_port(config: StackConfig) -> None:
    line = sentence(command(config, "up", TABWISE_REDIS_PORT=str(config.engine_port)))
    assert "TABWISE_REDIS_PORT" in line
    assert "TABWISE_ENGINE_PORT" in line


def test_a_port_that_is_no_number(config: StackConfig) -> None:
    assert "TABWISE_INGEST_PORT" in sentence(command(config, "up", TABWISE_INGEST_PORT="many"))


@pytest.mark.parametrize("kind", ["missing", "empty", "a word"])
def test_a_model_that_is_not_there(config: StackConfig, tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    path = {"missing": str(tmp_path / "missing"), "empty": str(tmp_path / "empty"), "a word": "tabwise"}[kind]
    assert "set TABWISE_MODEL_PATH" in sentence(command(config, "up", TABWISE_MODEL_PATH=path))


@pytest.mark.skipif(not Path("/proc/1").exists(), reason="needs a folder that nobody can write")
def test_a_data_folder_that_cannot_be_written(config: StackConfig) -> None:
    assert "set TABWISE_DATA_DIR" in sentence(command(config, "up", TABWISE_DATA_DIR="/proc/tabwise"))


def test_down_status_and_logs_without_a_stack(config: StackConfig) -> None:
    down = command(config, "down")
    assert (down.returncode, "nothing is running" in down.stdout) == (0, True)
    assert "nothing is running" in sentence(command(config, "status"))
    assert "there is no such log" in sentence(command(config, "logs"))


def test_the_editors_settings_can_be_had_without_a_stack(config: StackConfig) -> None:
    done = command(config, "editor")
    assert done.returncode == 0
    assert f"apiBase: {config.gateway_url}/v1" in done.stdout
