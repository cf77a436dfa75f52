"""Peak memory of this process: on CUDA of all tensors, on CPU of the resident set above a mark. Linux only.

On CPU the interpreter and the libraries are in the resident set; the mark leaves them out, and the weights.
"""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from pathlib import Path

import torch

_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """Where counting begins."""

    device: torch.device
    bytes: int

    @classmethod
    def here(cls, device: torch.device) -> Mark:
        """Forget the peak so far."""
        gc.collect()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return cls(device, 0)
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc(5)
        return cls(device, _status("VmRSS"))

    def peak_mb(self) -> float:
        """The most since then, above what there was then."""
        now = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else _status("VmHWM")
        return (now - self.bytes) / _MB


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
