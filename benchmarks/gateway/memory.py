"""Does the gateway's memory grow? `python -m benchmarks.gateway.memory --requests 1000000`: about half an hour.

Half of the requests are streamed; generations go to a real Redis. Resident memory is read after every step; the slope
is a least-squares line through the second half, when pools and caches have filled.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.gateway.peers import Gateway, started
from benchmarks.gateway.run import start_upstream
from benchmarks.processes import OTHERS_CORE, on_core
from deploy.local.embedded import EmbeddedRedis, free_port, running

console = Console(stderr=True)
STEPS = 40


def resident_kb(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def ask(url: str, requests: int, stream: bool) -> int:
    """Send about so many and return how many were answered."""
    command = [sys.executable, "-m", "benchmarks.gateway.load", f"{url}/v1/completions", "--connections", "16"]
    command += ["--seconds", "600", "--warm-s", "0", "--limit", str(requests), *(["--stream"] if stream else [])]
    done = subprocess.run(on_core(OTHERS_CORE, command), check=True, stdout=subprocess.PIPE)
    return int(json.loads(done.stdout)["requests"])


def main(requests: Annotated[int, typer.Option(help="in all, half of them streamed")] = 1_000_000) -> None:
    """The gateway's resident memory over many requests; JSON lines last."""
    seen: list[tuple[int, int]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabwise-bench-")))
        redis = EmbeddedRedis(folder / "redis", free_port())
        stack.enter_context(running(redis))
        upstream = start_upstream(stack, folder, 0.0)
        settings = {"TABWISE_CAPTURE_STREAM_LENGTH": "1000"}  # a recorder would empty it; Redis's memory is not asked
        server = stack.enter_context(started(Gateway(upstream, redis.url(), settings=settings), folder))
        answered = 0
        for step in range(STEPS):
            answered += ask(server.url, requests // STEPS, stream=bool(step % 2))
            seen.append((answered, resident_kb(server.pid)))
            console.print(f"{answered:>9} requests  {seen[-1][1] / 1024:.1f} MB")
    late = seen[len(seen) // 2 :]
    slope = statistics.linear_regression(*zip(*late, strict=True)).slope
    for figure, value in (
        ("memory_requests", seen[-1][0]),
        ("memory_mb", round(seen[-1][1] / 1024, 1)),
        ("memory_growth_second_half_mb", round((late[-1][1] - late[0][1]) / 1024, 2)),
        ("memory_slope_bytes_per_1000_requests", round(slope * 1024 * 1000, 1)),
    ):
        print(json.dumps({"bench": "gateway", "figure": figure, "ours": value}))


if __name__ == "__main__":
    typer.run(main)
