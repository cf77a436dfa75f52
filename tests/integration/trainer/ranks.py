"""The ranks of a learner that a test started, found in /proc by what they were told."""

from __future__ import annotations

import os
import time
from pathlib import Path

from services.trainer.learner_api import LEARNER_CONFIG


def environment(pid: int) -> dict[str, str]:
    """As it was at its start; empty where it is gone."""
    try:
        said = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in said.split("\0") if "=" in item)


def command_line(pid: int) -> str:
    """With spaces between the arguments."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes_about(model: Path) -> list[int]:
    """Every process but this one that was told of this model: torchrun, ranks."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    own = str(model)
    return [pid for pid in pids if pid != os.getpid() and own in environment(pid).get(LEARNER_CONFIG, "")]


def rank(number: int, model: Path) -> int:
    """The pid of this rank (what it starts itself inherits its environment)."""
    same = [pid for pid in processes_about(model) if environment(pid).get("RANK") == str(number)]
    [pid] = [pid for pid in same if _parent(pid) not in same]
    return pid


def cpu_s(pid: int) -> float:
    """What the process has computed so far."""
    user, system = _status(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _parent(pid: int) -> int:
    return int(_status(pid)[1])


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on: proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def all_gone(model: Path, within_s: float = 5.0) -> bool:
    """Whether none is left (a zombie has no environment)."""
    deadline = time.monotonic() + within_s
    while left := processes_about(model):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return not left
