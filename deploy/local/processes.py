"""The processes of a stack: who belongs to it, how much memory they take, and ending those that were left behind.

supervisord leads a session. All parts stay in it, also those whose parent died; what leaves it (the learner) is found
as a child while its parent lives, and remembered.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


class Family:
    """Every process of one stack that was ever seen."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.peak_mb = 0.0
        """Highest `memory_mb` that was sampled."""
        self._seen: set[psutil.Process] = set()

    def members(self) -> set[psutil.Process]:
        """All that live now."""
        found = {process for process in psutil.process_iter() if _session(process) == self.session}
        for process in list(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.update(process.children(recursive=True))
        self._seen |= found
        self._seen = {process for process in self._seen if _lives(process)}
        return set(self._seen)

    def end_group(self, leader: int) -> int:
        """Kill what is left of the process group of a part that died itself. Returns how many there were."""
        left = [process for process in self.members() if _group(process) == leader]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(left)

    def end(self, grace_s: float = 5) -> int:
        """Terminate, then kill, all that still live. Returns how many there were."""
        members = self.members()
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(members, timeout=grace_s)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(members, timeout=grace_s)
        return len(members)

    def memory_mb(self) -> float:
        """Memory in MB: the sum of the proportional set sizes, so that shared pages count once."""
        return sum(_pss(process) for process in self.members()) / 1e6

    @contextmanager
    def sampling(self, interval_s: float = 2.0) -> Iterator[None]:
        """Keep `peak_mb` up to date, in a thread, for the length of a `with` block."""
        done = threading.Event()

        def sample() -> None:
            while not done.wait(interval_s):
                self.peak_mb = max(self.peak_mb, self.memory_mb())

        thread = threading.Thread(target=sample, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:  # another account's process: at most its resident size
        return int(process.memory_info().rss)
