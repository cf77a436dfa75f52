"""Runs commands that we do not trust. In: `Run`. Out: `Outcome`. The work is done in `jail`, a process of its own.

What the kernel allows is found out once, by trying: `isolation_problem`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from signal import SIGTERM
from typing import Any, Final, Literal, cast

from pydantic import Field

from services.trainer.jail.task import HOME, Task, Verdict
from services.trainer.warmstart.rewards.options import Options
from shared.kit.errors import SettingsError, TabwiseError

_JAIL = "services.trainer.jail"
_SOURCES = str(Path(__file__).resolve().parents[4])
_MB = 1 << 20
_GRACE_S = 5.0
_USERS: Final = range(61184, 65520)
"""Numbers that systemd, too, gives to passing users."""
_SAME_EVERYWHERE: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Limits(Options):
    """Of one command and all that it starts."""

    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """By the wall clock."""
    cpu_s: int = Field(default=20, ge=1)
    """Of each process."""
    memory_mb: int = Field(default=1024, ge=16)
    """Resident, of all processes together; address space of each. Node.js and the JVM reserve more of the latter."""
    file_mb: int = Field(default=16, ge=1)
    """Largest file."""
    disk_mb: int = Field(default=256, ge=1)
    """The copy of the project and all that is written, in memory; with namespaces only."""
    processes: int = Field(default=64, ge=1)
    """Threads count."""
    output_kb: int = Field(default=1024, ge=1)


@dataclass(frozen=True, slots=True)
class Run:
    """One command in a copy of a project."""

    command: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the project → content, put in place of what is there."""
    project: str | None = None
    left_out: Sequence[str] = ()
    readable: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    report: str | None = None
    """Path in the project of a file that the command writes."""


Ended = Literal["exit", "signal", "timeout", "memory", "output", "died"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    ended: Ended
    """`died`: with all that watched it, as when the kernel runs out of memory."""
    status: int
    """Of `exit`: the exit status; of `signal`: its number; else -1."""
    output: str
    """The last of what was printed. May hold code: not for logs."""
    report: str | None


class SandboxError(TabwiseError):
    """The command was not run; the message says why."""


class Sandbox:
    """Runs commands under the same limits."""

    def __init__(self, limits: Limits, *, require_isolation: bool = True) -> None:
        """Raises `SettingsError` where isolation is required and cannot be had."""
        problem = isolation_problem()
        if require_isolation and problem:
            raise SettingsError(
                f"require_isolation: the kernel gives no namespaces here ({problem}); allow them (in a container: a "
                "seccomp profile with unshare and mount), or set require_isolation: false to run sampled code with "
                "limits but with network and file access"
            )
        self._limits, self._isolated = limits, problem is None

    @property
    def isolation(self) -> str:
        """What is in force, in words."""
        if self._isolated:
            return "no network, processes and files of its own"
        return f"limits alone, with network and file access ({isolation_problem()})"

    async def run(self, run: Run) -> Outcome:
        """Raises `SandboxError`. Cancelled, it leaves no process behind."""
        with tempfile.TemporaryDirectory(prefix="tabwise-sandbox-", ignore_cleanup_errors=True) as folder:
            os.chmod(folder, 0o711)  # noqa: PTH101 - at once done; ASYNC240 sees a blocking call in Path's
            verdict = await _converse(make_task(run, self._limits, folder, isolated=self._isolated))
        return _outcome(verdict)


@cache
def isolation_problem() -> str | None:
    """Why commands can't have namespaces of their own here; None where they can. Tried once, with `true`."""
    if sys.platform != "linux":
        return f"{sys.platform} is not Linux"
    with tempfile.TemporaryDirectory(prefix="tabwise-sandbox-") as folder:
        task = make_task(Run(["true"]), Limits(timeout_s=10), folder, isolated=True)
        tried = subprocess.run(**_jail_process(), input=json.dumps(task).encode(), stdout=subprocess.PIPE, timeout=20)
    verdict = cast(Verdict, json.loads(tried.stdout or b"{}"))
    if verdict.get("status") == 0:
        return None
    return verdict.get("problem") or verdict.get("output", "").strip() or "it died"


def make_task(run: Run, limits: Limits, folder: str, *, isolated: bool) -> Task:
    """In the jail's words."""
    home = HOME if isolated else f"{folder}/project"
    user = random.choice(_USERS) if os.getuid() == 0 else None
    others = 0 if isolated or user is not None else _own_threads()
    return Task(
        folder=folder,
        namespaces=isolated,
        user=user,
        project=run.project,
        left_out=list(run.left_out),
        files=dict(run.files),
        readable=[sys.prefix, sys.base_prefix, *run.readable],
        command=list(run.command),
        environment={**_SAME_EVERYWHERE, "HOME": home, "TMPDIR": "/tmp" if isolated else home, **run.environment},
        report=run.report,
        limits={
            "RLIMIT_CPU": limits.cpu_s,
            "RLIMIT_AS": limits.memory_mb * _MB,
            "RLIMIT_FSIZE": limits.file_mb * _MB,
            "RLIMIT_NPROC": limits.processes + others,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_CORE": 0,
        },
        timeout_s=limits.timeout_s,
        memory_bytes=limits.memory_mb * _MB,
        disk_bytes=limits.disk_mb * _MB,
        output_bytes=limits.output_kb * 1024,
    )


def _own_threads() -> int:
    """Of this user: the kernel counts them all against a process's limit."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
    return count


def _jail_process() -> dict[str, Any]:
    """How it is started: with nothing of our environment, so that there is nothing to read in it."""
    return {
        "args": [sys.executable, "-P", "-s", "-m", _JAIL],
        "env": {"PYTHONPATH": _SOURCES, "PATH": _SAME_EVERYWHERE["PATH"]},
        "cwd": "/",
        "start_new_session": True,
    }


async def _converse(task: Task) -> Verdict:
    started = _jail_process()
    jail = await asyncio.create_subprocess_exec(
        *started.pop("args"), **started, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        limit_s = task["timeout_s"] + _GRACE_S
        answer, _ = await asyncio.wait_for(jail.communicate(json.dumps(task).encode()), limit_s)
    except TimeoutError:
        raise SandboxError("the sandbox did not answer in time") from None
    finally:
        await _end(jail)
    return cast(Verdict, json.loads(answer or b"{}"))


async def _end(jail: asyncio.subprocess.Process) -> None:
    """Let it kill what it started, then be sure."""
    if jail.returncode is not None:
        return
    jail.send_signal(SIGTERM)
    try:
        await asyncio.shield(asyncio.wait_for(jail.wait(), _GRACE_S))
    except TimeoutError:
        jail.kill()
        await jail.wait()


def _outcome(verdict: Verdict) -> Outcome:
    if problem := verdict.get("problem"):
        hint = "; raise limits.disk_mb, or leave more out" if "No space left" in problem else ""
        raise SandboxError(f"the sandbox could not be prepared: {problem}{hint}")
    output, report = verdict.get("output", ""), verdict.get("report")
    if killed := verdict.get("killed"):
        return Outcome(killed, -1, output, report)
    status = verdict.get("status")
    if status is None:
        return Outcome("died", -1, output, report)
    return Outcome("signal", -status, output, report) if status < 0 else Outcome("exit", status, output, report)
