"""A process that must not outlive the one that started it, even where that one is killed (Linux).

The trainer starts the learner, or torchrun, which starts the ranks in sessions of their own: no signal to a process
group reaches all of them. So each asks the kernel to be killed when its own starter is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import structlog

log = structlog.get_logger()

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """From now on the kernel kills this process when the thread that started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def dying_with_us() -> Callable[[], None] | None:
    """The same as a `preexec_fn`: for a child between fork and exec."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def end(child: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait, then kill the child's whole process group."""
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        log.warning("learner killed", pid=child.pid)
    finally:
        _kill_group(child.pid)
        child.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
