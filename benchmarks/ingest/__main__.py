"""`make bench-ingest`: durable events per second, the recorder, and the join at scale; JSON lines last."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.ingest import joins, pgbench, recorder, servers
from benchmarks.ingest.figures import Measured, Results, head, lines
from benchmarks.processes import SERVER_CORE, on_core
from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_port, running

console = Console(stderr=True, highlight=False)
EVENTS_TABLE = "feedback_events"
PARTS = ("events", "recorder", "joins")


def compare(
    postgres: EmbeddedPostgres, redis: EmbeddedRedis, loads: list[int], rounds: int, seconds: float, folder: Path
) -> Results:
    """Ingest, the plain handler and pgbench, round by round, each running only while it is measured."""
    results = Results()
    for number in range(rounds):
        for name in ("ours", "naive", "pgbench"):
            with ExitStack() as stack:
                url = None
                if name == "ours":
                    url = stack.enter_context(servers.ingest(postgres, redis, folder, loops=False))
                elif name == "naive":
                    url = stack.enter_context(servers.naive(postgres, folder))
                for connections in loads:
                    measured = _measure(postgres, url, connections, seconds)
                    results.add(name, connections, measured)
                    _tell(f"round {number + 1}", name, connections, measured)
    servers.empty(postgres, EVENTS_TABLE)
    with servers.ingest(postgres, redis, folder, loops=True) as url:
        measured = _measure(postgres, url, loads[-1], seconds)
        results.add("ours_with_loops", loads[-1], measured)
        _tell("all loops in the same process", "ours", loads[-1], measured)
    return results


def _measure(postgres: EmbeddedPostgres, url: str | None, connections: int, seconds: float) -> Measured:
    """An empty table before; afterwards it holds at least what was acknowledged."""
    servers.empty(postgres, EVENTS_TABLE)
    if url is None:
        measured = pgbench.measure(postgres, servers.DATABASE, connections, seconds)
    else:
        measured = servers.load(url, connections, seconds)
    stored = servers.count_rows(postgres, EVENTS_TABLE)
    if stored < measured["events"]:
        raise SystemExit(f"{measured['events']} events were acknowledged and {stored} are in the ledger")
    return measured


def record(
    postgres: EmbeddedPostgres, redis: EmbeddedRedis, generations: int, rounds: int, texts: str
) -> dict[str, Any]:
    """The recorder on one core, median of the rounds."""
    seen = []
    for number in range(rounds):
        servers.empty(postgres, "generations")
        command = [sys.executable, "-m", "benchmarks.ingest.recorder", postgres.url(servers.DATABASE), redis.url()]
        command += ["--generations", str(generations), "--texts", texts]
        done = subprocess.run(on_core(SERVER_CORE, command), check=True, stdout=subprocess.PIPE)
        seen.append(json.loads(done.stdout))
        _tell(f"round {number + 1}", f"recorder, {texts}", 1, seen[-1])
    figures = {name: round(statistics.median(one[name] for one in seen), 1) for name in ("generations_per_s", "cpu_us")}
    return head("recorder_generations_per_s", generations=generations, texts=texts) | {
        "ours": figures["generations_per_s"],
        "cpu_us_per_generation": figures["cpu_us"],
    }


def join(postgres: EmbeddedPostgres, few: int, many: int) -> dict[str, Any]:
    """The join's query among few and among many generations."""
    found = []
    for total in (few, many):
        console.print(f"loading {total:,} generations …")
        joins.load(postgres, total)
        one = asyncio.run(joins.measure(postgres, total))
        console.print(
            f"{total:,} generations ({one.bytes / 1e9:.2f} GB): p50 {one.p50_ms:.2f} ms, p99 {one.p99_ms:.2f} ms, "
            f"plan cost {one.plan_cost:.1f}: {one.plan}"
        )
        found.append(one)
    servers.empty(postgres, "generations", EVENTS_TABLE)
    small, large = found
    return head("join_p99_ratio", generations=[few, many]) | {
        "ours": round(large.p99_ms / small.p99_ms, 3),
        "p50_ms": [round(one.p50_ms, 3) for one in found],
        "p99_ms": [round(one.p99_ms, 3) for one in found],
        "plan_cost": [round(one.plan_cost, 1) for one in found],
        "plan_cost_ratio": round(large.plan_cost / small.plan_cost, 3),
    }


def _tell(when: str, name: str, connections: int, measured: Measured) -> None:
    shown = "  ".join(f"{figure} {value:,.2f}" for figure, value in measured.items())
    console.print(f"{when}  {name:<9} ×{connections:<3} {shown}")


@contextmanager
def _folder(below: Path) -> Iterator[Path]:
    """A new folder that the database's own account may enter; gone afterwards."""
    below.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-ingest-", dir=below))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(
    seconds: Annotated[float, typer.Option(help="length of one load")] = 3.0,
    rounds: Annotated[int, typer.Option(help="interleaved rounds; figures are medians over them")] = 3,
    connections: Annotated[str, typer.Option(help="loads, separated by commas")] = "1,32,256",
    generations: Annotated[int, typer.Option(help="for the recorder, in multiples of 500")] = 20_000,
    few: Annotated[int, typer.Option(help="generations of the small join")] = 50_000,
    many: Annotated[int, typer.Option(help="generations of the large join; 5 million take about 5 GB")] = 5_000_000,
    parts: Annotated[str, typer.Option(help=f"what to measure, of {', '.join(PARTS)}")] = ",".join(PARTS),
    data: Annotated[Path, typer.Option(help="folder on a real disk for PostgreSQL's data")] = Path("var"),
) -> None:
    """Ingest beside the plain handler and pgbench on a PostgreSQL that syncs every commit; about five minutes.

    Quieter machines give truer figures: nothing else should run. With two cores or more, servers have one of their own.
    """
    wanted = [part.strip() for part in parts.split(",") if part.strip()]
    if unknown := set(wanted) - set(PARTS):
        raise typer.BadParameter(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    found: list[dict[str, Any]] = []
    loads = [int(count) for count in connections.split(",")]
    with _folder(data) as folder, servers.ledger(folder) as postgres:
        redis = EmbeddedRedis(folder / "redis", free_port())
        with running(redis):
            if "events" in wanted:
                found += lines(compare(postgres, redis, loads, rounds, seconds, folder), loads)
            if "recorder" in wanted:
                found += [record(postgres, redis, generations, rounds, texts) for texts in recorder.TEXTS]
            if "joins" in wanted:
                found.append(join(postgres, few, many))
    for line in found:
        print(json.dumps(line))


if __name__ == "__main__":
    typer.run(main)
