"""From settings to vLLM's flags and environment: pure functions."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from services.engine.settings import EngineSettings

_CPU_CACHE_GB = 0.25


def arguments(settings: EngineSettings, *, cpu: bool) -> list[str]:
    """Flags of vLLM's OpenAI server; `cpu`: for vLLM's CPU build."""
    flags = {
        "--model": settings.model_path,
        "--served-model-name": settings.served_model_name,
        "--host": settings.engine_host,
        "--port": str(settings.engine_port),
        "--dtype": settings.engine_dtype,
        "--max-model-len": str(settings.max_model_len),
        "--max-num-seqs": str(settings.engine_max_num_seqs),
        "--gpu-memory-utilization": str(settings.gpu_memory_utilization),
        "--logprobs-mode": "processed_logprobs",
        "--worker-extension-cls": "services.engine.extension.CheckpointLoader",
        # the model's own generation_config would change the sampling behind the gateway's back
        "--generation-config": "vllm",
        "--uvicorn-log-level": "warning",
    }
    switches = ["--enable-prefix-caching", "--no-enable-log-requests", "--disable-uvicorn-access-log"]
    eager = cpu if settings.engine_enforce_eager is None else settings.engine_enforce_eager
    switches += ["--enforce-eager"] if eager else []
    parts = (part for flag in flags.items() for part in flag)
    return [*parts, *switches, *_memory(settings, cpu), *_processes(settings, cpu), *_extra(settings)]


def environment(settings: EngineSettings, *, cpu: bool) -> dict[str, str]:
    """Variables that vLLM reads; to be set before it is imported."""
    values = {
        "VLLM_SERVER_DEV_MODE": "1",  # pause, collective_rpc, weight_info …
        "VLLM_MAX_STOP_STRINGS": "64",  # Continue sends twelve; vLLM's own limit of four answers 400
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": settings.log_level,
    }
    if Path(settings.model_path).is_dir():
        values["HF_HUB_OFFLINE"] = "1"
    if cpu and settings.engine_threads:
        values["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        values["OMP_NUM_THREADS"] = str(settings.engine_threads)
        # without it vLLM refuses one process for engine and worker on a CPU, because it wants to bind threads itself
        values["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return values


def cpu_build() -> bool:
    """Whether vLLM's CPU build is installed; told without importing it."""
    versions = {name: _installed(name) for name in ("vllm-cpu", "vllm")}
    return versions["vllm-cpu"] is not None or "cpu" in (versions["vllm"] or "")


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _memory(settings: EngineSettings, cpu: bool) -> list[str]:
    size_gb = settings.engine_kv_cache_gb or (_CPU_CACHE_GB if cpu else None)
    return [] if size_gb is None else ["--kv-cache-memory-bytes", str(int(size_gb * 1024**3))]


def _processes(settings: EngineSettings, cpu: bool) -> list[str]:
    """Worker and engine in one process: half the memory (1.6 instead of 3.3 GB) and faster answers on two cores."""
    return ["--distributed-executor-backend", "uni"] if cpu and settings.engine_threads else []


def _extra(settings: EngineSettings) -> list[str]:
    return shlex.split(settings.engine_extra_args)
