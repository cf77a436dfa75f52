"""How often vLLM's prefix cache hits, with requests at home (affinity) and without: two real engines, one gateway.

python -m benchmarks.gateway.prefix_cache [--model models/tabwise-small] [--developers 6] [--seed 1]

Replays one seeded typing session per developer, each going to and fro between files of their own, twice: with affinity
and without. Hit rate: tokens found in the cache / tokens of prompts, from vLLM's own counters. Prints JSON lines.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from benchmarks.gateway.engine import start_engine
from benchmarks.gateway.load import KEY
from benchmarks.gateway.peers import Gateway, started
from clients.developer.moments import ask_moments
from clients.developer.prompts import STOP, fim_prompt
from clients.developer.work import team_modules
from deploy.local.embedded import EmbeddedRedis, free_port, running

console = Console(stderr=True)
_LINGER = 5
"""Pauses in one file before the developer looks at another."""
_MAX_TOKENS = 8
_QUERIES, _HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


@dataclass(frozen=True)
class Pause:
    """One request: think, then ask."""

    think_s: float
    prompt: str


@dataclass
class Seen:
    """What one replay came to."""

    queried: float
    hit: float
    took_s: list[float]
    failed: int
    shares: list[int]
    """Requests that each replica served."""


def session(seed: int, files: int, pauses: int) -> list[Pause]:
    """One developer's: files of the house, a few pauses in one, then the next one, in typing order in each."""
    rng = random.Random(seed)
    modules = team_modules(rng, None)
    walks = [iter(_prompts(next(modules).source, rng)) for _ in range(files)]
    found: list[Pause] = []
    while walks and len(found) < pauses:
        walk = rng.choice(walks)
        for _ in range(rng.randint(1, 2 * _LINGER - 1)):
            prompt = next(walk, None)
            if prompt is None:
                walks.remove(walk)
                break
            found.append(Pause(rng.uniform(0.02, 0.3), prompt))
    return found[:pauses]


def _prompts(source: str, rng: random.Random) -> Iterator[str]:
    for moment in ask_moments(source, rng):
        yield fim_prompt(moment.prefix, moment.suffix)


async def replay(url: str, sessions: Sequence[Sequence[Pause]]) -> tuple[list[float], int]:
    """All developers at once, each asking one thing after the other: seconds per answer, and how many failed."""
    took_s: list[float] = []
    failed = 0

    async def develop(client: httpx.AsyncClient, pauses: Sequence[Pause]) -> None:
        nonlocal failed
        for pause in pauses:
            await asyncio.sleep(pause.think_s)
            began = time.monotonic()
            answer = await client.post("/v1/completions", json=_body(pause.prompt))
            failed += answer.status_code != 200
            took_s.append(time.monotonic() - began)

    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        await asyncio.gather(*(develop(client, pauses) for pauses in sessions))
    return took_s, failed


def _body(prompt: str) -> dict[str, Any]:
    return {"model": "tabwise", "prompt": prompt, "max_tokens": _MAX_TOKENS, "temperature": 0, "stop": list(STOP)}


def counters(engine: str, *names: str) -> list[float]:
    """Sums over the label sets of an engine's counters."""
    lines = httpx.get(f"{engine}/metrics", trust_env=False).text.splitlines()
    return [
        sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        for name in names
    ]


def measure(
    engines: Sequence[str], redis_url: str, folder: Path, sessions: Sequence[Sequence[Pause]], *, affinity: bool
) -> Seen:
    """One replay on empty caches."""
    for engine in engines:
        httpx.post(f"{engine}/reset_prefix_cache", trust_env=False).raise_for_status()
    names = (_QUERIES, _HITS, "vllm:request_success_total")
    before = [counters(engine, *names) for engine in engines]
    settings = {"TABWISE_REPLICA_AFFINITY": str(affinity).lower()}
    with started(Gateway(",".join(engines), redis_url, settings=settings), folder) as gateway:
        took_s, failed = asyncio.run(replay(gateway.url, sessions))
    after = [counters(engine, *names) for engine in engines]
    queried, hit, _ = (sum(b[i] - a[i] for a, b in zip(before, after, strict=True)) for i in range(3))
    shares = [round(b[2] - a[2]) for a, b in zip(before, after, strict=True)]
    return Seen(queried, hit, took_s, failed, shares)


def lines(seen: Seen, *, affinity: bool) -> Iterator[dict[str, Any]]:
    """The figures of one replay."""
    head = {"bench": "gateway", "affinity": affinity, "replicas": len(seen.shares), "requests": len(seen.took_s)}
    figures = {
        "prefix_cache_hit_rate": round(seen.hit / seen.queried, 4) if seen.queried else None,
        "prefix_cache_p50_ms": round(statistics.median(seen.took_s) * 1000, 1),
        "prefix_cache_requests_per_replica": seen.shares,
        "prefix_cache_failures": seen.failed,
    }
    for figure, value in figures.items():
        yield head | {"figure": figure, "ours": value}


def main(
    model: Annotated[Path, typer.Option(help="model folder")] = Path("models/tabwise-small"),
    developers: Annotated[int, typer.Option(help="who type at the same time")] = 6,
    files: Annotated[int, typer.Option(help="that each of them has open")] = 4,
    pauses: Annotated[int, typer.Option(help="requests of each of them")] = 48,
    seed: Annotated[int, typer.Option(help="of the sessions")] = 1,
) -> None:
    """Hit rate with and without affinity; JSON lines last."""
    sessions = [session(1000 * seed + number, files, pauses) for number in range(developers)]
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabwise-bench-")))
        redis = EmbeddedRedis(folder / "redis", free_port())
        stack.enter_context(running(redis))
        engines = []
        for number in range(2):
            (folder / f"engine-{number}").mkdir()
            engines.append(start_engine(stack, folder / f"engine-{number}", model))
        for affinity in (True, False):
            seen = measure(engines, redis.url(), folder, sessions, affinity=affinity)
            console.print("affinity" if affinity else "no affinity", seen.shares, f"{seen.hit:.0f}/{seen.queried:.0f}")
            found += lines(seen, affinity=affinity)
    for line in found:
        print(json.dumps(line))


if __name__ == "__main__":
    typer.run(main)
