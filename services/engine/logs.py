"""vLLM's logs: its own format on standard error, and errors also into a file, so that a failed start can say why.

The model is loaded in a child process; its error reaches the parent only as "see root cause above".
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

_CULPRITS = {
    ("gpu_memory_utilization", "GPU memory", "CUDA out of memory"): "gpu_memory_utilization",
    ("kv-cache-memory", "KV cache", "KVCACHE"): "engine_kv_cache_gb",
    ("max_model_len", "max seq len"): "max_model_len",
    ("dtype", "bfloat16"): "engine_dtype",
}
_ERROR_LINE = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Exit)\b: .+)$")


def logging_config(level: str, errors: Path) -> dict[str, Any]:
    """A `logging.config.dictConfig` for vLLM and all its processes."""
    text = {"format": "%(levelname)s %(asctime)s vllm %(name)s: %(message)s"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"text": text},
        "handlers": {
            "stream": {"class": "logging.StreamHandler", "formatter": "text", "stream": "ext://sys.stderr"},
            "errors": {
                "class": "logging.FileHandler",
                "level": "ERROR",
                "formatter": "text",
                "filename": str(errors),
                "delay": True,
            },
        },
        "loggers": {"vllm": {"handlers": ["stream", "errors"], "level": level, "propagate": False}},
    }


def write_logging_config(folder: Path, level: str) -> tuple[Path, Path]:
    """Write the config into `folder`; returns its path and that of the file that will hold the errors."""
    config, errors = folder / "logging.json", folder / "errors.log"
    config.write_text(json.dumps(logging_config(level, errors)))
    return config, errors


def last_error(errors: Path) -> str | None:
    """The last line that names an exception, for one sentence to the operator."""
    if not errors.exists():
        return None
    lines = [found.group(1) for line in errors.read_text(errors="replace").splitlines() if (found := _find(line))]
    return lines[-1] if lines else None


def one_line(error: Exception) -> str:
    """An exception as one line of bounded length; pydantic's without its appendix."""
    details = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return f"{type(error).__name__}: {' '.join(details.split())[:300]}"


def setting_for(reason: str) -> str:
    """The setting that an error of vLLM most likely speaks of."""
    for words, setting in _CULPRITS.items():
        if any(word in reason for word in words):
            return setting
    return "model_path"


def _find(line: str) -> re.Match[str] | None:
    return _ERROR_LINE.search(line.rstrip())
