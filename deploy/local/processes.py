"""The processes of a stack: who belongs to it, how much memory they take, and ending those that were left behind.

supervisord leads a session of its own and all parts stay in it, also those whose parent died.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


def session_members(session: int) -> list[psutil.Process]:
    """All living processes of the session."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def end_leftovers(session: int, grace_s: float = 5) -> int:
    """Terminate, then kill, what still lives in the session. Returns how many there were."""
    members = session_members(session)
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(members, timeout=grace_s)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(members, timeout=grace_s)
    return len(members)


def memory_mb(session: int) -> float:
    """Memory of the session in MB: the sum of the proportional set sizes, so that shared pages count once."""
    return sum(_pss(process) for process in session_members(session)) / 1e6


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:  # another account's process: at most its resident size
        return int(process.memory_info().rss)


class MemoryPeak:
    """Highest `memory_mb` seen so far."""

    def __init__(self) -> None:
        self.peak_mb = 0.0

    @contextmanager
    def sampling(self, session: int, interval_s: float = 2.0) -> Iterator[None]:
        """Sample in a thread for the length of a `with` block."""
        done = threading.Event()

        def sample() -> None:
            while not done.wait(interval_s):
                self.peak_mb = max(self.peak_mb, memory_mb(session))

        thread = threading.Thread(target=sample, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
