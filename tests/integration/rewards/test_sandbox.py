"""Commands that do harm, made and run: with namespaces where the kernel gives them, and with limits alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from services.trainer.jail.task import Verdict
from services.trainer.warmstart.rewards import sandbox as room
from services.trainer.warmstart.rewards.sandbox import Limits, Outcome, Run, Sandbox, isolation_problem, make_task
from shared.kit.errors import SettingsError

LIMITS = Limits(timeout_s=20, cpu_s=1, memory_mb=128, file_mb=4, disk_mb=16, processes=20, output_kb=256)
NAMESPACES = "with namespaces"
needs_namespaces = pytest.mark.skipif(
    isolation_problem() is not None, reason=f"the kernel gives no namespaces: {isolation_problem()}"
)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(params=[pytest.param(NAMESPACES, marks=needs_namespaces), "limits alone"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    if request.param != NAMESPACES:
        monkeypatch.setattr(room, "isolation_problem", lambda: "a test says so")
    return Sandbox(LIMITS, require_isolation=False)


@pytest.fixture
def impatient(sandbox: Sandbox) -> Sandbox:
    """The same, for what never ends."""
    return Sandbox(LIMITS.model_copy(update={"timeout_s": 2}), require_isolation=False)


@pytest.fixture
def isolated() -> Sandbox:
    return Sandbox(LIMITS)


async def sh(sandbox: Sandbox, script: str, **run: object) -> Outcome:
    return await sandbox.run(Run(["sh", "-c", script], **run))  # type: ignore[arg-type]


def running(marker: str) -> list[str]:
    """Command lines of processes that have this in them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_bytes().decode(errors="replace")
            if marker in line and int(process.name) != os.getpid():
                found.append(line)
    return found


async def test_a_command_works_on_a_copy(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("old")
    (tmp_path / "other").write_text("other")
    (tmp_path / ".git").mkdir()
    script = "cat pkg/a.py other && echo written > pkg/a.py && cp pkg/a.py report && ls -a && pwd && echo $HOME"
    files = {"pkg/a.py": "new ", "deep/er/b": ""}
    done = await sh(sandbox, script, project=str(tmp_path), files=files, left_out=[".git"], report="report")
    assert (done.ended, done.status, done.report) == ("exit", 0, "written\n"), done.output
    assert done.output.startswith("new other")
    lines = done.output.split()
    assert "deep" in lines
    assert ".git" not in lines
    assert lines[-1] == lines[-2]
    assert (tmp_path / "pkg" / "a.py").read_text() == "old"


@pytest.mark.parametrize(("script", "ended", "status"), [("exit 7", "exit", 7), ("kill -SEGV $$", "signal", 11)])
async def test_how_it_ended(sandbox: Sandbox, script: str, ended: str, status: int) -> None:
    done = await sh(sandbox, script)
    assert (done.ended, done.status) == (ended, status)


async def test_a_command_that_is_not_there(sandbox: Sandbox) -> None:
    done = await sandbox.run(Run(["no-such-program"]))
    assert (done.ended, done.status) == ("exit", 127)
    assert "FileNotFoundError" in done.output


async def test_it_has_no_privileges(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "id -u; id -G; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status || true")
    user, groups, *rights = done.output.splitlines()
    assert user != "0"
    assert "0" not in groups.split()
    assert {right.split()[1] for right in rights} <= {"0000000000000000", "1"}


async def test_nothing_of_our_environment_is_there(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_API_KEY", "s3cret-of-the-team")
    done = await sh(sandbox, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true", environment={"MINE": "yes"})
    if os.getuid() == 0:
        assert "s3cret-of-the-team" not in done.output
    assert "MINE=yes" in done.output


async def test_one_that_never_ends(impatient: Sandbox) -> None:
    started = time.monotonic()
    marker = f"61.{uuid4().int % 10**9}"
    done = await sh(impatient, f"trap '' TERM INT HUP; sleep {marker} & sleep {marker}")
    assert done.ended == "timeout"
    assert time.monotonic() - started < 10
    assert running(marker) == []


async def test_one_that_burns_a_processor(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "while :; do :; done")
    assert (done.ended, done.status) == ("signal", 9)


async def test_a_fork_bomb(impatient: Sandbox) -> None:
    marker = f"bomb{uuid4().hex}"
    script = 'b() { b "$1" | b "$1" & }; b ' + marker + "; while :; do sleep 1; done"
    done = await impatient.run(Run(["sh", "-c", script, marker]))
    assert done.ended in ("timeout", "exit", "signal", "output")
    assert running(marker) == []


async def test_children_that_leave_the_process_group(sandbox: Sandbox) -> None:
    marker = f"62.{uuid4().int % 10**9}"
    done = await sh(sandbox, f"(setsid sh -c 'setsid sleep {marker} & sleep {marker}' &) ; sleep 0.2; echo ready")
    assert (done.ended, done.status, done.output) == ("exit", 0, "ready\n")
    assert running(marker) == []


async def test_a_memory_hog(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "head -c 600m /dev/zero | tail")
    assert done.ended == "memory" or done.status != 0


async def test_many_small_memory_hogs(sandbox: Sandbox) -> None:
    """Each of them within its limit."""
    done = await sh(sandbox, "for i in 1 2 3 4 5 6; do (head -c 60m /dev/zero; sleep 9) | tail & done; wait")
    assert done.ended == "memory"


async def test_endless_output(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "yes")
    assert done.ended == "output"
    assert len(done.output) <= 4000


async def test_a_very_large_file(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "head -c 50m /dev/zero > big; echo $?; stat -c %s big")
    status, size = done.output.split()[-2:]
    assert status != "0"
    assert int(size) <= LIMITS.file_mb << 20


@pytest.mark.parametrize("make", ["ln -s /etc/passwd report", "mkdir report", "mkfifo report", "true"])
async def test_a_report_that_is_none(sandbox: Sandbox, make: str) -> None:
    done = await sh(sandbox, make, report="report")
    assert (done.ended, done.status, done.report) == ("exit", 0, None)


async def test_a_file_outside_of_the_project_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    for name in ("../x", "link/x", "/tmp/x"):
        with pytest.raises(room.SandboxError, match="is not in the project"):
            await sh(sandbox, "true", project=str(tmp_path), files={name: ""})


async def test_cancelled_it_leaves_nothing(sandbox: Sandbox) -> None:
    marker = f"63.{uuid4().int % 10**9}"
    task = asyncio.create_task(sh(sandbox, f"setsid sleep {marker} & sleep {marker}"))
    while len(running(f"sleep\0{marker}")) < 2:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(marker) == []


@needs_namespaces
async def test_more_files_than_the_disk_holds(isolated: Sandbox) -> None:
    done = await sh(isolated, "for i in $(seq 20); do head -c 2m /dev/zero > f$i || exit 3; done")
    assert (done.ended, done.status) == ("exit", 3)


@needs_namespaces
async def test_a_project_that_is_larger_than_the_disk(isolated: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (LIMITS.disk_mb << 20))
    (tmp_path / "more").write_bytes(b"x" * (1 << 20))
    with pytest.raises(room.SandboxError, match=r"No space left on device.*; raise limits.disk_mb, or leave more out"):
        await sh(isolated, "true", project=str(tmp_path))


@needs_namespaces
async def test_writing_outside(isolated: Sandbox, tmp_path: Path) -> None:
    """Programs are read-only, the rest of the disk isn't there, and what can be written is gone afterwards."""
    mark = uuid4().hex
    target = tmp_path / "precious"
    target.write_text("precious")
    places = f"/usr/{mark} /etc/{mark} /bin/{mark} /{mark} {target} {tmp_path}/{mark} /proc/sys/{mark}"
    script = f"for p in {places}; do (echo x > $p) 2>/dev/null && echo written $p; done; cat {target}; rm -rf /usr/bin"
    done = await sh(isolated, f"{script}; ls /home /root {Path.home()} /run /var; touch /tmp/{mark}")
    assert "written" not in done.output.replace(f"written /{mark}", "")
    assert "precious\n" not in done.output
    assert target.read_text() == "precious"
    assert Path("/usr/bin/env").exists()
    assert not [p for p in (f"/tmp/{mark}", f"/{mark}", f"/usr/{mark}") if Path(p).exists()]


@needs_namespaces
async def test_no_network(isolated: Sandbox) -> None:
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert subprocess.run([sys.executable, "-c", code, port], check=False).returncode == 0
        done = await isolated.run(Run([sys.executable, "-c", code, port]))
    assert done.status == 1
    assert "OSError" in done.output or "refused" in done.output


@needs_namespaces
async def test_other_processes_are_out_of_reach(isolated: Sandbox) -> None:
    done = await sh(isolated, f"kill -9 {os.getpid()}; kill -9 {os.getppid()}; ls -d /proc/[0-9]* | wc -l; kill -9 -1")
    assert int([line for line in done.output.split() if line.isdigit()][-1]) < 10


@needs_root
async def test_root_becomes_somebody_else_without_namespaces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "isolation_problem", lambda: "a test says so")
    done = await sh(
        Sandbox(LIMITS, require_isolation=False), "id -u; touch /usr/mine /root/mine; kill -9 1; echo alive"
    )
    assert int(done.output.split()[0]) in range(61184, 65520)
    assert done.output.endswith("alive\n")
    assert not Path("/usr/mine").exists()


def test_required_isolation_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "isolation_problem", lambda: "unshare: Operation not permitted")
    with pytest.raises(SettingsError, match=r"require_isolation: .*unshare: Operation not permitted.*set require_isol"):
        Sandbox(LIMITS)
    assert Sandbox(LIMITS, require_isolation=False).isolation.startswith("limits alone")


@needs_root
@needs_namespaces
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("id -u", "65534"),
        ("grep CapEff /proc/self/status", "CapEff:\t0000000000000000"),
        ("ls /sys /home /root 2>&1 | grep -c 'No such'", "3"),
        ("echo x > /usr/x || echo read-only", "read-only"),
        ("ls /sys/class/net; cat /proc/net/dev | wc -l", "3"),
        ("for i in $(seq 60); do sleep 3 & done 2>&1; echo", "fork"),
    ],
)
def test_whoever_is_not_root_gets_a_user_namespace(tmp_path: Path, script: str, says: str) -> None:
    """The jail alone, by the system's Python, as `nobody`."""
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("there is no /usr/bin/python3 that everybody may read")
    folder = tmp_path / "folder"
    folder.mkdir()
    task = make_task(Run(["sh", "-c", script]), LIMITS, str(folder), isolated=True) | {"user": None}
    task["readable"] = []
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o755)
    os.chown(folder, 65534, 65534)
    done = subprocess.run(
        [python, "-P", "-m", "services.trainer.jail"],
        env={"PYTHONPATH": str(Path(room.__file__).parents[4]), "PYTHONDONTWRITEBYTECODE": "1"},
        input=json.dumps(task).encode(),
        stdout=subprocess.PIPE,
        user=65534,
        group=65534,
        extra_groups=[],
        check=True,
        timeout=20,
    )
    verdict: Verdict = json.loads(done.stdout)
    assert says in verdict.get("output", ""), verdict
