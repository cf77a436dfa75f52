"""The keeper: prepares the command's surroundings, runs it, kills what it leaves behind, hands over its report."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
from contextlib import suppress
from functools import partial

from services.trainer.jail import kernel
from services.trainer.jail.filesystem import enter_project
from services.trainer.jail.processes import fork_into, kill_descendants
from services.trainer.jail.task import Task, Verdict

_REPORT_BYTES = 1_000_000


def keep(task: Task, output: int, answer: int) -> None:
    """Its life. `output`: where the command prints to; `answer`: where the verdict goes."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    try:
        enter_project(task)
    except OSError as error:
        say(answer, Verdict(problem=_one_line(error)))
        return
    status = _wait_for(fork_into(partial(_become_command, task, output)))
    if task["namespaces"]:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all of our PID namespace
    else:
        kill_descendants(os.getpid())
    say(answer, Verdict(status=os.waitstatus_to_exitcode(status), report=_read_report(task["report"])))


def _one_line(error: OSError) -> str:
    """The first of many, where a whole folder could not be copied."""
    if isinstance(error, shutil.Error):
        return str(error.args[0][0][2])
    return f"{error.strerror or error} {error.filename or ''}".strip()


def say(end: int, verdict: Verdict) -> None:
    """As JSON into a pipe."""
    data = json.dumps(verdict).encode()
    while data:
        data = data[os.write(end, data) :]


def _become_command(task: Task, output: int) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 4096)
    for name, value in task["limits"].items():
        _limit(getattr(resource, name), value)
    if (user := task["user"]) is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    os.execvpe(task["command"][0], task["command"], task["environment"])


def _limit(kind: int, value: int) -> None:
    """At most `value`; what is stricter already stays."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _wait_for(pid: int) -> int:
    """The status of this child; orphans that come to us meanwhile are reaped."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _read_report(name: str | None) -> str | None:
    """If it is a plain file: the command may have made anything of that name."""
    if name is None:
        return None
    with suppress(OSError):
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as opened:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return opened.read(_REPORT_BYTES).decode(errors="replace")
    return None
