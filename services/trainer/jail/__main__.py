"""The warden: reads the task, has it run, watches, kills, prints the verdict."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

from services.trainer.jail import kernel
from services.trainer.jail.keeper import keep, say
from services.trainer.jail.processes import descendants, fork_into, kill_descendants, resident_bytes
from services.trainer.jail.task import Killed, Task, Verdict

_LOOK_S = 0.1
_TAIL = 4000


def main() -> None:
    """Ends with everything that it started, also where its own parent dies or sends SIGTERM."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _leave)
    task: Task = json.loads(sys.stdin.buffer.read())
    try:
        if task["namespaces"]:
            _enter_namespaces()
    except OSError as error:
        say(1, Verdict(problem=str(error.strerror)))
        return
    say(1, _run(task))


def _enter_namespaces() -> None:
    """Network, names and the children's process numbers. Who isn't root needs a user namespace for that."""
    user, group = os.getuid(), os.getgid()
    own = 0 if user == 0 else kernel.NEW_USER
    kernel.unshare(own | kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS)
    if own:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")


def _run(task: Task) -> Verdict:
    output, output_end = os.pipe()
    answer, answer_end = os.pipe()
    fork_into(partial(keep, task, output_end, answer_end))
    os.close(output_end)
    os.close(answer_end)
    killed, printed = _watch(task, output, answer)
    verdict: Verdict = json.loads(_rest(answer) or b"{}") if killed is None else {}
    kill_descendants(os.getpid())
    verdict["killed"], verdict["output"] = killed, printed.decode(errors="replace")
    return verdict


def _watch(task: Task, output: int, answer: int) -> tuple[Killed | None, bytes]:
    """Until the keeper answers or a limit is broken. Which one, and the last of what was printed."""
    deadline_s, printed, tail, ends = time.monotonic() + task["timeout_s"], 0, b"", [output, answer]
    look_s = 0.0
    while True:
        ready, _, _ = select.select(ends, [], [], _LOOK_S)
        if output in ready:
            chunk = os.read(output, 65536)
            printed, tail = printed + len(chunk), (tail + chunk)[-_TAIL:]
            if not chunk:
                ends.remove(output)
        elif answer in ready:
            return None, tail
        if printed > task["output_bytes"]:
            return "output", tail
        if (now_s := time.monotonic()) > deadline_s:
            return "timeout", tail
        if now_s > look_s:
            look_s = now_s + _LOOK_S
            if resident_bytes(descendants(os.getpid())) > task["memory_bytes"]:
                return "memory", tail


def _rest(end: int) -> bytes:
    """All that is still to come from the keeper, which ends after it."""
    with os.fdopen(end, "rb") as opened:
        return opened.read()


def _leave(*_: object) -> NoReturn:
    kill_descendants(os.getpid())
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
