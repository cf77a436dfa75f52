"""The experiment: load, kills in turn and at random, then calm until nothing moves any more."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psycopg
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Counted

from benchmarks.chaos_ingest.consumer import Consumer
from benchmarks.chaos_ingest.load import CLIENT_TIMEOUT, Developer, Promises
from benchmarks.chaos_ingest.victims import KINDS, SERVICES, Scene
from services.gateway.emitter import Emitter
from services.gateway.metrics import GatewayMetrics
from services.gateway.settings import GatewaySettings
from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.kit.errors import TemporaryError
from shared.streams import RedisStreams

log = structlog.get_logger()

CALM_S = (0.4, 1.6)
DOWN_S = (0.0, 1.0)
DRAIN_S = 90.0
BUSY_S = 1.5
BUSY_MIB = 100
WAITING = """
SELECT (SELECT count(*) FROM feedback_events WHERE status = 'pending')
     + (SELECT count(*) FROM outcomes WHERE resolved_at IS NULL)
     + (SELECT count(*) FROM outbox WHERE sent_at IS NULL)"""


@dataclass
class Ran:
    """What happened."""

    promises: Promises = field(default_factory=Promises)
    kills: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    dropped: int = 0
    handed_over_again: int = 0
    drained: bool = False


def victims_of(number: int, rounds: int, chance: random.Random) -> list[str]:
    """In turn for the first half of the rounds, then one or two at random."""
    if number < max(len(KINDS), rounds // 2):
        return [KINDS[number % len(KINDS)]]
    return chance.sample(KINDS, chance.choice((1, 1, 2)))


async def chaos(scene: Scene, rounds: int, developers: int, seed: int) -> Ran:
    """Every round: some calm, `kill -9`, a time without, a new start."""
    ran, chance = Ran(), random.Random(seed)
    async with _trainer(scene, ran, seed):
        async with _load(scene, ran, developers, seed):
            for number in range(rounds):
                await asyncio.sleep(chance.uniform(*CALM_S))
                await _strike(scene, victims_of(number, rounds, chance), chance, ran)
                log.info("round over", round=number + 1, acknowledged=ran.promises.answers["acknowledged"])
            await asyncio.sleep(max(CALM_S))
        ran.drained = await _drain(scene)
    return ran


@contextmanager
def busy_disk(folder: Path) -> Iterator[None]:
    """Somebody else writes much: with `everysec` Redis then answers before it has written."""
    over = threading.Event()

    def write() -> None:
        with (folder / "busy").open("wb", buffering=0) as file:
            while not over.is_set():
                file.seek(0)
                for _ in range(BUSY_MIB):
                    file.write(bytes(1 << 20))
                os.fsync(file.fileno())

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join()


async def _strike(scene: Scene, names: list[str], chance: random.Random, ran: Ran) -> None:
    with busy_disk(scene.folder) if "redis" in names else nullcontext():
        await asyncio.sleep(BUSY_S if "redis" in names else 0)
        for name in names:
            await asyncio.to_thread(scene.victims[name].kill)
    await asyncio.sleep(chance.uniform(*DOWN_S))
    for name in sorted(names, key=SERVICES.__contains__):  # servers first
        scene.victims[name].start()
        await asyncio.to_thread(scene.victims[name].await_ready)
    ran.kills.update(names)


@asynccontextmanager
async def _load(scene: Scene, ran: Ran, developers: int, seed: int) -> AsyncIterator[None]:
    """Developers at work; at the end all of them have got their answers, and all generations are handed over."""
    metrics = GatewayMetrics(CollectorRegistry())
    streams = RedisStreams.from_url(scene.redis_url)
    emitter = Emitter(streams, GatewaySettings(capture_retry_s=600, capture_drain_s=60), metrics)
    emitter.start()
    stop = asyncio.Event()
    async with aiohttp.ClientSession(timeout=CLIENT_TIMEOUT) as http:
        people = [
            Developer(seed * 1000 + number, scene.ingest_url, emitter.offer, http, ran.promises)
            for number in range(developers)
        ]
        working = [asyncio.create_task(developer.work(stop)) for developer in people]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*working)
            await emitter.stop()
            await streams.close()
    ran.dropped = _total(metrics.dropped)
    ran.handed_over_again = _total(metrics.handed_over_again)


def _total(counter: Counted) -> int:
    return int(sum(one.value for metric in counter.collect() for one in metric.samples if one.name.endswith("_total")))


@asynccontextmanager
async def _trainer(scene: Scene, ran: Ran, seed: int) -> AsyncIterator[None]:
    consumer = Consumer(scene.database_url, scene.redis_url, seed)
    working = asyncio.create_task(consumer.work())
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        ran.delivered = consumer.delivered


async def _drain(scene: Scene) -> bool:
    """Until nothing waits anywhere; False where something still does after `DRAIN_S`."""
    deadline = time.monotonic() + DRAIN_S
    while await _waiting(scene):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.5)
    return True


async def _waiting(scene: Scene) -> int:
    streams = RedisStreams.from_url(scene.redis_url)
    try:
        lengths = [await streams.length(name) for name in (STREAM_GENERATIONS, STREAM_EXPERIENCE)]
    except TemporaryError:
        return 1
    finally:
        await streams.close()
    async with await psycopg.AsyncConnection.connect(scene.database_url.replace("+psycopg", "")) as connection:
        row = await (await connection.execute(WAITING)).fetchone()
    assert row is not None
    return int(row[0]) + sum(lengths)
