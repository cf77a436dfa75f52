"""Moves generations from the stream into PostgreSQL, in batches, acknowledged after the commit.

In: stream generations. Out: table generations. A crash between commit and acknowledgement delivers again, and the
primary key makes that harmless. An entry that can never be stored goes to `<stream>:dead` with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.metrics import IngestMetrics
from services.ingest.repository import Repository
from services.ingest.rows import to_row
from services.ingest.settings import IngestSettings
from services.ingest.worker import is_refusal
from shared.contracts.generation import Generation
from shared.contracts.names import GROUP_RECORDER, STREAM_GENERATIONS
from shared.kit.errors import InvalidMessage
from shared.streams import Entry, Streams

log = structlog.get_logger()

BLOCK_MS = 1000


class Recorder:
    """One consumer of the generations stream."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        streams: Streams,
        metrics: IngestMetrics,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._streams = streams
        self._metrics = metrics
        self._own_pending = True
        self._claimed_at_s = float("-inf")

    async def step(self) -> int:
        """One batch; its size. Own entries left by a crash first, then those that others left, then new ones."""
        try:
            entries = await self._next_entries()
            if entries:
                await self._record(entries)
        except BaseException:
            self._own_pending = True  # what was claimed and not acknowledged has to be read again
            raise
        return len(entries)

    async def _next_entries(self) -> list[Entry]:
        name, size = self._settings.recorder_name, self._settings.ingest_batch_size
        if self._own_pending:
            await self._streams.ensure_group(STREAM_GENERATIONS, GROUP_RECORDER)
            entries = await self._streams.read_own(STREAM_GENERATIONS, GROUP_RECORDER, name, count=size)
            if entries:
                return entries
            self._own_pending = False
        if time.monotonic() - self._claimed_at_s > self._settings.recorder_idle_claim_s:
            idle_ms = int(self._settings.recorder_idle_claim_s * 1000)
            entries = await self._streams.claim_idle(
                STREAM_GENERATIONS, GROUP_RECORDER, name, min_idle_ms=idle_ms, count=size
            )
            if entries:
                return entries
            self._claimed_at_s = time.monotonic()
        return await self._streams.read(STREAM_GENERATIONS, GROUP_RECORDER, name, count=size, block_ms=BLOCK_MS)

    async def _record(self, entries: Sequence[Entry]) -> None:
        good: list[tuple[Entry, dict[str, Any]]] = []
        for entry in entries:
            try:
                good.append((entry, to_row(_parse(entry.payload))))
            except InvalidMessage as error:
                await self._put_aside(entry, str(error))
        try:
            await self._store([row for _, row in good])
        except DBAPIError as error:
            if not is_refusal(error):
                raise
            good = await self._store_one_by_one(good)
        await self._streams.ack(STREAM_GENERATIONS, GROUP_RECORDER, [entry.entry_id for entry, _ in good])
        self._metrics.generations.inc(len(good))

    async def _store(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            async with self._sessions.begin() as session:
                await Repository(session).add_generations(rows)

    async def _store_one_by_one(self, batch: list[tuple[Entry, dict[str, Any]]]) -> list[tuple[Entry, dict[str, Any]]]:
        """After a batch with a row that the database refuses: find it, put it aside, keep the others."""
        stored = []
        for entry, row in batch:
            try:
                await self._store([row])
                stored.append((entry, row))
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
                await self._put_aside(entry, "refused_by_database")
        return stored

    async def _put_aside(self, entry: Entry, reason: str) -> None:
        await self._streams.dead_letter(STREAM_GENERATIONS, GROUP_RECORDER, entry, reason)
        self._metrics.dead_letters.labels(reason.partition(":")[0]).inc()
        log.error("generation put aside", entry_id=entry.entry_id, reason=reason)


def _parse(payload: bytes) -> Generation:
    """Raises `InvalidMessage` with the field that is wrong; never with its value."""
    try:
        return Generation.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise InvalidMessage(f"invalid_generation: {where}: {first['type']}") from None
