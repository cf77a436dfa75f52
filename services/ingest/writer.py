"""Group commit: events of concurrent requests go to the ledger together; each request learns what became of its own.

In: parsed events, one per request. Out: rows of `feedback_events`, committed before their requests are answered.

A batch is what came while the last one was being committed: a lone event is committed at once, batches grow with the
load, so nothing ever waits for a timer. An event that PostgreSQL refuses is found by halving its batch and fails alone;
while PostgreSQL is away every event of the batch fails. More than `max_waiting` are refused at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from services.ingest.intake_queries import EventToStore
from services.ingest.worker import is_refusal, is_temporary
from shared.kit.errors import InvalidMessage, TabwiseError, TemporaryError

log = structlog.get_logger()

MAX_BATCH_CHARS = 4_000_000
"""Of displayed text in one statement, unless a single event has more."""


class LedgerBusy(TabwiseError):
    """More events wait for their commit than may wait."""


class Insert(Protocol):
    """Stores events in one transaction; returns the dedupe keys of those that were not there yet."""

    async def __call__(self, events: Sequence[EventToStore]) -> set[str]: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: EventToStore
    stored: asyncio.Future[bool]

    def resolve(self, new: bool) -> None:
        if not self.stored.done():
            self.stored.set_result(new)

    def fail(self, error: Exception) -> None:
        if not self.stored.done():
            self.stored.set_exception(error)


class EventWriter:
    """All event routes of a process share one."""

    def __init__(self, insert: Insert, *, max_waiting: int, max_batch: int, timeout_s: float) -> None:
        self._insert = insert
        self._max_waiting = max_waiting
        self._max_batch = max_batch
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def store(self, event: EventToStore) -> bool:
        """Returns once it is committed: True where it is new, False where the same fact was stored before.

        Raises `LedgerBusy` (nothing was tried), `InvalidMessage` (PostgreSQL cannot hold it) and `TemporaryError` (not
        committed in time, or PostgreSQL is away; it may have been stored all the same, and a repeat counts once).
        """
        if len(self._waiting) >= self._max_waiting:
            raise LedgerBusy(f"{self._max_waiting} events wait for their commit")
        waiting = _Waiting(event, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiting.stored
        except TimeoutError:
            raise TemporaryError("not committed in time") from None

    async def close(self) -> None:
        """Returns when nothing is being committed any more."""
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        """Batch after batch until nobody waits."""
        await asyncio.sleep(0)  # requests that arrived together get into the same batch
        while batch := self._next_batch():
            await self._commit(batch)

    def _next_batch(self) -> list[_Waiting]:
        """The longest waiting events, without those whose request gave up."""
        batch: list[_Waiting] = []
        chars = 0
        while self._waiting and len(batch) < self._max_batch:
            if self._waiting[0].stored.done():
                self._waiting.popleft()
                continue
            chars += len(self._waiting[0].event.event.completion)
            if batch and chars > MAX_BATCH_CHARS:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        """Everybody in `batch` gets a result or an error of their own."""
        try:
            async with asyncio.timeout(self._timeout_s):
                new = await self._insert([waiting.event for waiting in batch])
        except BaseException as error:
            await self._failed(batch, error)
            return
        for waiting in batch:
            key = waiting.event.event.dedupe_key
            waiting.resolve(key in new)
            new.discard(key)  # the same event twice in one batch is new once

    async def _failed(self, batch: Sequence[_Waiting], error: BaseException) -> None:
        if not isinstance(error, Exception):  # cancelled: the process ends
            for waiting in batch:
                waiting.fail(TemporaryError(type(error).__name__))
            raise error
        if is_temporary(error):
            log.warning("ledger away", error=type(error).__name__, events=len(batch))
            for waiting in batch:
                waiting.fail(TemporaryError(type(error).__name__))
        elif len(batch) == 1:
            batch[0].fail(InvalidMessage("refused_by_database") if is_refusal(error) else error)
        else:
            half = len(batch) // 2
            await self._commit(batch[:half])
            await self._commit(batch[half:])
