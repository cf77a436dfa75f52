"""Generations on their way to the stream, never in a client's way.

In: `offer(generation)`, which only puts bytes into a bounded queue. Out: batches appended to STREAM_GENERATIONS by one
background task, which keeps trying while Redis is away. What cannot be kept is counted, by reason:
`queue_full`, `redis_away` (longer than `capture_retry_s`), `shutdown`.

Redis may lose what it took in its last two seconds (`Streams.instance`). So what was handed over is kept until the same
life of Redis has gone on for longer than that; if another one began, it is handed over again. The recorder knows a
generation by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass

import structlog

from services.gateway.metrics import GatewayMetrics
from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_GENERATIONS
from shared.kit.errors import TemporaryError
from shared.streams.protocol import Streams

log = structlog.get_logger()
_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_APPEND_TIMEOUT_S = 5.0
_GATHER_S = 0.005
"""What is offered within this time goes to Redis together: one round trip instead of one for each."""
_CONFIRM_EVERY_S = 1.0
_CONFIRMED_AFTER_S = 3.0
"""Redis writes what it took at most two seconds later."""


@dataclass(frozen=True, slots=True)
class _HandedOver:
    """What a life of Redis took, and when."""

    at_s: float
    instance: str
    payload: bytes


class Emitter:
    """Between `start()` and `stop()` one task runs; `offer` works at any time and never waits."""

    def __init__(self, streams: Streams, settings: GatewaySettings, metrics: GatewayMetrics) -> None:
        self._streams = streams
        self._settings = settings
        self._metrics = metrics
        self._queue: deque[tuple[float, bytes]] = deque()
        self._instance: str | None = None
        self._unconfirmed: deque[_HandedOver] = deque(maxlen=settings.capture_queue_size)
        self._offered = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to hand over."""
        self._task = asyncio.create_task(self._run(), name="emitter")
        self._confirming = asyncio.create_task(self._confirm_always(), name="emitter_confirming")

    async def stop(self) -> None:
        """Hand over what is left, for at most `capture_drain_s`; then count it as dropped."""
        self._stopping.set()
        self._offered.set()
        if self._task is not None and self._confirming is not None:
            await asyncio.wait([self._task], timeout=self._settings.capture_drain_s)
            for task in (self._task, self._confirming):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._drop(len(self._queue), "shutdown")

    def offer(self, generation: Generation) -> None:
        """Take it over, or count it as dropped."""
        if not self._settings.capture:
            return
        if len(self._queue) >= self._settings.capture_queue_size:
            self._metrics.dropped.labels("queue_full").inc()
            return
        self._queue.append((time.monotonic(), generation.model_dump_json().encode()))
        self._depth()
        self._offered.set()

    async def _run(self) -> None:
        while self._queue or not self._stopping.is_set():
            self._offered.clear()
            if self._queue:
                await self._hand_over()
            else:
                await self._offered.wait()
                await self._gather()

    async def _gather(self) -> None:
        if not self._stopping.is_set():
            await asyncio.sleep(_GATHER_S)

    async def _hand_over(self) -> None:
        """The oldest batch, until it is there or too old."""
        pause_s = _SHORTEST_PAUSE_S
        while batch := [payload for _, payload in list(self._queue)[: self._settings.capture_batch_size]]:
            if await self._append(batch):
                self._forget(len(batch))
                self._metrics.recorded.inc(len(batch))
                return
            self._drop_expired()
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _append(self, batch: list[bytes]) -> bool:
        try:
            async with asyncio.timeout(_APPEND_TIMEOUT_S):
                instance = self._instance = self._instance or await self._streams.instance()
                await self._streams.append(STREAM_GENERATIONS, batch, max_length=self._settings.capture_stream_length)
        except (TemporaryError, TimeoutError) as error:
            self._metrics.append_failures.inc()
            log.warning("generations not recorded yet", waiting=len(self._queue), error=type(error).__name__)
            return False
        now_s = time.monotonic()
        self._unconfirmed.extend(_HandedOver(now_s, instance, payload) for payload in batch)
        return True

    async def _confirm_always(self) -> None:
        while True:
            await asyncio.sleep(_CONFIRM_EVERY_S)
            if self._unconfirmed:
                with contextlib.suppress(TemporaryError):
                    self._confirm(await self._streams.instance())

    def _confirm(self, instance: str) -> None:
        """This life of Redis goes on: forget what it has kept long enough, hand over again what another one took."""
        self._instance = instance
        safe_s = time.monotonic() - _CONFIRMED_AFTER_S
        lost = [one.payload for one in self._unconfirmed if one.instance != instance]
        kept = [one for one in self._unconfirmed if one.instance == instance and one.at_s > safe_s]
        self._unconfirmed.clear()
        self._unconfirmed.extend(kept)
        if lost:
            self._metrics.handed_over_again.inc(len(lost))
            log.warning("generations handed over again", count=len(lost))
            now_s = time.monotonic()
            self._queue.extend((now_s, payload) for payload in lost)
            self._depth()
            self._offered.set()

    async def _pause(self, pause_s: float) -> None:
        """Shorter when the gateway stops."""
        if self._stopping.is_set():
            await asyncio.sleep(_SHORTEST_PAUSE_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)

    def _drop_expired(self) -> None:
        oldest = time.monotonic() - self._settings.capture_retry_s
        self._drop(sum(at <= oldest for at, _ in self._queue), "redis_away")

    def _drop(self, count: int, reason: str) -> None:
        if count:
            self._metrics.dropped.labels(reason).inc(count)
            log.error("generations dropped", count=count, reason=reason)
            self._forget(count)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._queue.popleft()
        self._depth()

    def _depth(self) -> None:
        self._metrics.queue_depth.set(len(self._queue))
