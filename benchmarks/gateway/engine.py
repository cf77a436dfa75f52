"""Completions through the gateway beside a direct connection, in front of real vLLM with the small model.

python -m benchmarks.gateway.engine [--model models/tabwise-small] [--rounds 3]
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.gateway.figures import Case, Results
from benchmarks.gateway.peers import Gateway, started
from benchmarks.gateway.run import measure
from benchmarks.processes import ANY_CORE, serving
from deploy.local.embedded import EmbeddedRedis, free_port, running

console = Console(stderr=True)


def start_engine(stack: ExitStack, folder: Path, model: Path) -> str:
    """vLLM as the stack starts it; runs until `stack` closes."""
    port = free_port()
    environment = {
        "TABWISE_MODEL_PATH": str(model.absolute()),
        "TABWISE_ENGINE_PORT": str(port),
        "TABWISE_SERVING_ROOT": str(folder / "serving"),
    }
    url, command = f"http://127.0.0.1:{port}", [sys.executable, "-m", "services.engine"]
    log = folder / f"engine-{port}.log"
    stack.enter_context(serving(command, f"{url}/health", log, core=ANY_CORE, environment=environment, timeout_s=180))
    return url


def main(
    model: Annotated[Path, typer.Option(help="model folder")] = Path("models/tabwise-small"),
    seconds: Annotated[float, typer.Option(help="length of one load")] = 8.0,
    rounds: Annotated[int, typer.Option(help="interleaved rounds; figures are medians over them")] = 3,
) -> None:
    """Completions per second and p99, direct and through the gateway; JSON lines last."""
    cases = [Case(stream, connections) for stream in (False, True) for connections in (1, 8)]
    results = Results()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabwise-bench-")))
        redis = EmbeddedRedis(folder / "redis", free_port())
        stack.enter_context(running(redis))
        engine = start_engine(stack, folder, model)
        gateway = stack.enter_context(started(Gateway(engine, redis.url()), folder))
        measure(engine, Case(True, 8), 5.0)  # vLLM compiles on its first batches
        for _ in range(rounds):
            for case in cases:
                for name, url in (("direct", engine), ("ours", gateway.url)):
                    results.add(name, case, measure(url, case, seconds))
                    console.print(name, case, results.median(name, case, "rps"))
    for case in cases:
        for figure in ("rps", "p50_ms", "p99_ms"):
            direct, ours = (results.median(name, case, figure) for name in ("direct", "ours"))
            if direct and ours:
                head = {"bench": "gateway", "figure": f"engine_{figure}", "connections": case.connections}
                values = {"ours": round(ours, 2), "direct": round(direct, 2), "ratio": round(ours / direct, 4)}
                print(json.dumps(head | {"stream": case.stream} | values))
    print(json.dumps({"bench": "gateway", "figure": "engine_failures", "ours": results.failures("ours")}))


if __name__ == "__main__":
    typer.run(main)
