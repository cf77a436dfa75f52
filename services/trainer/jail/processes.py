"""Who is below whom, by /proc; how much memory they have; how to be rid of them."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def fork_into(life: Callable[[], None]) -> int:
    """A child that does this and ends. Its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 127
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        life()
        status = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def descendants(ancestor: int) -> list[int]:
    """All processes below this one, zombies included."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            after_name = (process / "stat").read_bytes().rpartition(b")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(process.name))
    found, ahead = [], [ancestor]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def kill_descendants(ancestor: int) -> None:
    """Until there are none: stop all, so that none forks while others die, and kill them. They are reaped by us."""
    while below := descendants(ancestor):
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
        _reap()
        time.sleep(0.001)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def resident_bytes(pids: list[int]) -> int:
    """Memory in use by all of these; what they share counts for each."""
    pages = 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    return pages * resource.getpagesize()
