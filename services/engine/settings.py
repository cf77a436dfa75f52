"""Settings of the engine. CPU and GPU differ in these values only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.kit.settings import ServiceSettings


class EngineSettings(ServiceSettings):
    """How vLLM is started. Environment variable of a field: `TABWISE_` + its name in capitals."""

    model_path: str = "models/tabwise-small"
    """Folder of the base model in Hugging Face format, or a repository name such as `Qwen/Qwen2.5-Coder-1.5B`."""
    served_model_name: str = "tabwise"
    """The model name that requests use."""
    engine_host: str = "127.0.0.1"
    """Admin routes are open to whoever can connect: never an address outside the internal network."""
    engine_port: int = Field(default=8000, ge=1, le=65535)
    engine_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    """Of weights and activations. The learner's must be the same, or the probe's tolerance wider."""
    max_model_len: int = Field(default=2048, ge=16)
    """Prompt and completion together, in tokens; more is answered 400."""
    engine_max_num_seqs: int = Field(default=32, ge=1)
    """Requests that are decoded at once; others wait."""
    engine_kv_cache_gb: float | None = Field(default=None, gt=0)
    """Memory of the KV cache in GiB. Unset: 0.25 on a CPU (260,000 tokens of the small model); on a GPU what is left
    of `gpu_memory_utilization`."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of the GPU's memory that vLLM may take; without effect on a CPU."""
    engine_threads: int = Field(default=1, ge=0)
    """OpenMP threads on a CPU, not bound to cores, because the learner shares them; 0: vLLM's own binding. One is best
    for a small model beside a learner: two that wait for each other were three times slower on two busy cores."""
    engine_enforce_eager: bool | None = None
    """No compilation, so that it starts in seconds. Unset: yes on a CPU, no on a GPU."""
    engine_extra_args: str = ""
    """Further flags of vLLM's server, as on a command line."""
