"""One load on one server, and the static upstream: processes of their own, on the core that the servers do not use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.gateway.figures import Case, Measured
from benchmarks.processes import OTHERS_CORE, on_core, serving
from deploy.local.embedded import free_port

WARM_S = 0.5


def measure(url: str, case: Case, seconds: float, pid: int | None = None) -> Measured:
    """What the load generator saw; with `pid`, also the server's CPU time per request."""
    command = [sys.executable, "-m", "benchmarks.gateway.load", f"{url}/v1/completions", "--warm-s", str(WARM_S)]
    command += [
        "--connections",
        str(case.connections),
        "--seconds",
        str(seconds),
        *(["--stream"] if case.stream else []),
    ]
    before = 0.0 if pid is None else cpu_s(pid)
    done = subprocess.run(on_core(OTHERS_CORE, command), check=True, stdout=subprocess.PIPE)
    measured: Measured = json.loads(done.stdout)
    if pid is not None and measured["requests"]:
        of_all = seconds / (seconds + WARM_S)
        measured["cpu_ms"] = 1000 * (cpu_s(pid) - before) * of_all / measured["requests"]
    return measured


def cpu_s(pid: int) -> float:
    """CPU seconds that the process and its children have used."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _own_cpu_s(pid) + sum(cpu_s(int(child)) for child in children)


def _own_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_upstream(stack: ExitStack, folder: Path, gap_ms: float) -> str:
    """The static upstream's URL; it runs until `stack` closes."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.gateway.upstream", str(port), "--gap-ms", str(gap_ms)]
    url = f"http://127.0.0.1:{port}"
    stack.enter_context(serving(command, f"{url}/health", folder / "upstream.log", core=OTHERS_CORE, timeout_s=20))
    return url
