"""Runs a step again and again, through outages of PostgreSQL and Redis, until it is cancelled."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from services.ingest.metrics import IngestMetrics
from shared.kit.errors import TemporaryError

log = structlog.get_logger()

Step = Callable[[], Awaitable[int]]
"""One unit of work; returns how much it did. 0: nothing to do, wait before the next."""

FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 5.0


REFUSALS = ("22", "23", "54")
"""SQLSTATE classes of a row that PostgreSQL will never take: bad data, a broken constraint, too large for an index."""


def is_refusal(error: BaseException) -> bool:
    """Whether PostgreSQL refused the values themselves, so that the same step can never work."""
    sqlstate = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return isinstance(error, DataError) or (sqlstate or "").startswith(REFUSALS)


def is_temporary(error: BaseException) -> bool:
    """Whether the other side is away, so that the same step may work later."""
    if is_refusal(error):
        return False
    if isinstance(error, DBAPIError):
        away = isinstance(error, OperationalError | InterfaceError | InternalError)
        return away or error.connection_invalidated
    return isinstance(error, TemporaryError | PoolTimeoutError | OSError)


@dataclass(frozen=True)
class Loop:
    """A named step and how long it rests when there is nothing to do."""

    name: str
    step: Step
    idle_s: float

    async def run(self, metrics: IngestMetrics) -> None:
        """Until cancelled. A failure is logged once, and so is the recovery."""
        up = metrics.loop_up.labels(self.name)
        failing_with: str | None = None
        failures = 0
        while True:
            try:
                done = await self.step()
            except Exception as error:
                failing_with = self._failed(error, failing_with, metrics)
                up.set(0)
                failures += 1
                await asyncio.sleep(_backoff_s(failures))
                continue
            if failing_with is not None:
                log.info("loop works again", loop=self.name, after_failures=failures)
            failing_with, failures = None, 0
            up.set(1)
            await asyncio.sleep(0 if done else self.idle_s)

    def _failed(self, error: Exception, failing_with: str | None, metrics: IngestMetrics) -> str:
        name = type(error).__name__
        metrics.loop_failures.labels(self.name, name).inc()
        if name == failing_with:
            return name
        if is_temporary(error):
            log.warning("loop waits for the other side", loop=self.name, error=name)
        else:  # frames, never the message: it may quote what is in a row
            frames = "".join(traceback.format_tb(error.__traceback__)[-5:])
            log.error("loop step failed", loop=self.name, error=name, frames=frames)
        return name


def _backoff_s(failures: int) -> float:
    longest = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)


async def run_all(loops: list[Loop], metrics: IngestMetrics) -> None:
    """Run loops side by side until cancelled."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run(metrics), name=loop.name)
