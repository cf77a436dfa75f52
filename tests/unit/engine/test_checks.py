"""What is said before vLLM is started, and after it failed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.engine.checks import check_model, check_port
from services.engine.logs import last_error, logging_config, one_line, setting_for
from services.engine.settings import EngineSettings
from shared.kit.errors import SettingsError


def test_a_whole_model_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    check_model(str(tmp_path))


@pytest.mark.parametrize(("present", "why"), [([], "no config.json"), (["config.json"], "no .*safetensors")])
def test_a_folder_that_is_no_model(tmp_path: Path, present: list[str], why: str) -> None:
    for name in present:
        (tmp_path / name).write_text("{}")
    with pytest.raises(SettingsError, match=f"TABWISE_MODEL_PATH: .*{why}"):
        check_model(str(tmp_path))


def test_a_repository_is_left_to_vllm() -> None:
    check_model("Qwen/Qwen2.5-Coder-1.5B")


@pytest.mark.parametrize("path", ["/nowhere/model", "models/not-there", "./x", "a/b/c"])
def test_a_folder_that_is_not_there(path: str) -> None:
    with pytest.raises(SettingsError, match="TABWISE_MODEL_PATH: there is no model folder at"):
        check_model(path)


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match="TABWISE_ENGINE_PORT"):
            check_port("127.0.0.1", taken.getsockname()[1])


def test_the_command_says_one_sentence() -> None:
    environment = os.environ | {"TABWISE_MODEL_PATH": "/nowhere/model"}
    command = [sys.executable, "-m", "services.engine"]
    stopped = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (stopped.returncode, stopped.stdout) == (2, "")
    assert stopped.stderr == "engine: TABWISE_MODEL_PATH: there is no model folder at /nowhere/model\n"


def test_the_last_error_of_a_child(tmp_path: Path) -> None:
    log = tmp_path / "errors.log"
    assert last_error(log) is None
    log.write_text(
        "ERROR 2026-11-20 vllm vllm.v1.engine.core: EngineCore failed to start.\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "    raise ValueError(1)\n"
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata\n"
        "\n"
    )
    assert last_error(log) == "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata"


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("ValueError: User-specified max_model_len (100000) is greater than the derived one", "max_model_len"),
        ("ValueError: No available memory for the KV cache blocks", "engine_kv_cache_gb"),
        ("torch.OutOfMemoryError: CUDA out of memory", "gpu_memory_utilization"),
        ("SafetensorError: incomplete metadata", "model_path"),
    ],
)
def test_the_setting_that_an_error_speaks_of(reason: str, setting: str) -> None:
    assert setting_for(reason) == setting
    assert setting in EngineSettings.model_fields


def test_an_error_is_one_line() -> None:
    with pytest.raises(ValidationError) as raised:
        EngineSettings(engine_port=0)
    assert one_line(raised.value) == "ValidationError: Input should be greater than or equal to 1"
    assert one_line(RuntimeError("a\n  b")) == "RuntimeError: a b"


def test_errors_go_to_the_file_too(tmp_path: Path) -> None:
    config = logging_config("INFO", tmp_path / "errors.log")
    assert config["handlers"]["errors"]["level"] == "ERROR"
    assert config["loggers"]["vllm"]["handlers"] == ["stream", "errors"]
