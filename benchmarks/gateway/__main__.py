"""`make bench-gateway`: the gateway, nginx and LiteLLM's proxy in one run; JSON lines last.

Exit status 2: something that the run needs is missing; the last line says what.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.gateway.figures import Case, Measured, Results, gap_lines, lines
from benchmarks.gateway.peers import Gateway, LiteLLM, Nginx, Peer, started
from benchmarks.gateway.run import measure, start_upstream
from deploy.local.embedded import EmbeddedRedis, free_port, running

console = Console(stderr=True)
GAP_MS = 10.0


def compare(
    upstream: str, peers: list[Peer], cases: list[Case], *, rounds: int, seconds: float, folder: Path
) -> Results:
    """All peers, round by round, each running only while it is measured."""
    results = Results()
    for number in range(rounds):
        for case in cases:
            results.add("direct", case, measure(upstream, case, seconds))
        for peer in peers:
            with started(peer, folder) as server:
                for case in cases:
                    measured = measure(server.url, case, seconds, server.pid)
                    results.add(peer.name, case, measured)
                    _tell(number, peer.name, case, measured)
    return results


def _tell(number: int, name: str, case: Case, measured: Measured) -> None:
    shown = " ".join(f"{figure} {value:.2f}" for figure, value in measured.items())
    console.print(
        f"round {number + 1}  {name:<22} {'stream' if case.stream else 'whole '} ×{case.connections:<3} {shown}"
    )


def main(
    seconds: Annotated[float, typer.Option(help="length of one load")] = 4.0,
    rounds: Annotated[int, typer.Option(help="interleaved rounds; figures are medians over them")] = 3,
    connections: Annotated[str, typer.Option(help="loads, separated by commas")] = "1,8,64",
    litellm: Annotated[Path | None, typer.Option(help="LiteLLM's `litellm` program; left out where not given")] = None,
    with_nginx: Annotated[bool, typer.Option("--nginx/--no-nginx")] = True,
) -> None:
    """The gateway beside nginx and LiteLLM's proxy, in front of the same static upstream."""
    if with_nginx and shutil.which("nginx") is None:
        console.print("nginx is not installed: `apt-get install nginx-light`, or leave it out with --no-nginx")
        raise typer.Exit(2)
    cases = [Case(stream, int(count)) for stream in (False, True) for count in connections.split(",")]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabwise-bench-")))
        redis = EmbeddedRedis(folder / "redis", free_port())
        stack.enter_context(running(redis))
        found = []
        for gap_ms, loads in ((0.0, cases), (GAP_MS, [Case(True, 1)])):
            upstream = start_upstream(stack, folder, gap_ms)
            peers: list[Peer] = [Nginx(upstream)] if with_nginx else []
            peers += [Gateway(upstream, redis.url()), Gateway(upstream, redis.url(), capture=False)]
            if litellm is not None:
                peers.append(LiteLLM(upstream, litellm.absolute()))
            results = compare(upstream, peers, loads, rounds=rounds, seconds=seconds, folder=folder)
            found += gap_lines(results, loads[0]) if gap_ms else lines(results, loads)
            found.append({"bench": "gateway", "figure": "failures", "gap_ms": gap_ms, "ours": results.failures("ours")})
    for line in found:
        print(json.dumps(line))


if __name__ == "__main__":
    typer.run(main)
