"""Settings as vLLM's flags and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.engine.command import arguments, cpu_build, environment
from services.engine.settings import EngineSettings


def flag(given: list[str], name: str) -> str | None:
    return given[given.index(name) + 1] if name in given else None


def test_what_learning_needs() -> None:
    given = arguments(EngineSettings(), cpu=True)
    assert flag(given, "--logprobs-mode") == "processed_logprobs"
    assert flag(given, "--generation-config") == "vllm"
    assert flag(given, "--worker-extension-cls") == "services.engine.extension.CheckpointLoader"
    assert "--enable-prefix-caching" in given


def test_what_privacy_needs() -> None:
    given = arguments(EngineSettings(), cpu=True)
    assert "--no-enable-log-requests" in given
    assert "--disable-uvicorn-access-log" in given
    assert environment(EngineSettings(), cpu=True)["VLLM_NO_USAGE_STATS"] == "1"


def test_cpu_defaults() -> None:
    given = arguments(EngineSettings(), cpu=True)
    assert flag(given, "--distributed-executor-backend") == "uni"
    assert flag(given, "--kv-cache-memory-bytes") == str(256 * 1024**2)
    assert "--enforce-eager" in given
    told = environment(EngineSettings(), cpu=True)
    assert told["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert told["OMP_NUM_THREADS"] == "1"


def test_gpu_defaults() -> None:
    settings = EngineSettings(engine_dtype="bfloat16", gpu_memory_utilization=0.4)
    given = arguments(settings, cpu=False)
    assert flag(given, "--kv-cache-memory-bytes") is None
    assert flag(given, "--distributed-executor-backend") is None
    assert flag(given, "--gpu-memory-utilization") == "0.4"
    assert flag(given, "--dtype") == "bfloat16"
    assert "--enforce-eager" not in given
    assert "OMP_NUM_THREADS" not in environment(settings, cpu=False)


def test_vllms_own_binding() -> None:
    settings = EngineSettings(engine_threads=0)
    assert "VLLM_CPU_OMP_THREADS_BIND" not in environment(settings, cpu=True)
    assert "--distributed-executor-backend" not in arguments(settings, cpu=True)


def test_settings_go_over_the_defaults() -> None:
    settings = EngineSettings(
        engine_kv_cache_gb=2.5, engine_enforce_eager=False, engine_extra_args="--seed 7 --x 'a b'"
    )
    given = arguments(settings, cpu=True)
    assert flag(given, "--kv-cache-memory-bytes") == str(int(2.5 * 1024**3))
    assert "--enforce-eager" not in given
    assert given[-4:] == ["--seed", "7", "--x", "a b"]


def test_a_folder_is_never_looked_up_on_the_hub(tmp_path: Path) -> None:
    assert environment(EngineSettings(model_path=str(tmp_path)), cpu=True)["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(EngineSettings(model_path="Qwen/Qwen2.5-Coder-1.5B"), cpu=True)


@pytest.mark.parametrize(
    ("installed", "cpu"),
    [({"vllm-cpu": "0.32.0"}, True), ({"vllm": "0.32.0"}, False), ({"vllm": "0.32.0+cpu"}, True)],
)
def test_which_build(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], cpu: bool) -> None:
    monkeypatch.setattr("services.engine.command._installed", installed.get)
    assert cpu_build() is cpu
