"""Servers and load generators as processes: bound to cores of their own where there are two, awaited, stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SERVER_CORE, OTHERS_CORE = 1, 0
ANY_CORE = None


def on_core(core: int | None, command: list[str]) -> list[str]:
    """`command` bound to one core, where there are at least two and the system can do it."""
    if core is ANY_CORE or (os.cpu_count() or 1) < 2 or shutil.which("taskset") is None:
        return command
    return ["taskset", "-c", str(core), *command]


@contextmanager
def serving(
    command: list[str],
    ready_url: str,
    log: Path,
    *,
    core: int | None = SERVER_CORE,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 90,
) -> Iterator[int]:
    """Run a server for the length of a `with` block; gives its process id once `ready_url` answers. Output: `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            on_core(core, command), env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _await_answer(ready_url, process, timeout_s, log)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _await_answer(url: str, process: subprocess.Popen[bytes], timeout_s: float, log: Path) -> None:
    """Until `url` answers 200. Exits with the end of the log where the process dies or takes too long."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer; the end of {log}:\n" + log.read_text(errors="replace")[-2000:])
