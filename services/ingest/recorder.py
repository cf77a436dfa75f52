"""Moves generations from the stream into PostgreSQL, in batches, acknowledged after the commit.

In: stream generations. Out: table generations. A crash between commit and acknowledgement delivers again, and the
primary key makes that harmless. An entry that can never be stored goes to `<stream>:dead` with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.generation_copy import CopyRow, copy_generations, copy_row, made_of, prompt_digest
from services.ingest.metrics import IngestMetrics
from services.ingest.redaction import without_secrets
from services.ingest.reviving import late_keys, revive_events
from services.ingest.settings import IngestSettings
from services.ingest.worker import is_refusal
from shared.contracts.generation import Generation
from shared.contracts.names import GROUP_RECORDER, STREAM_GENERATIONS
from shared.kit.clock import utc_now
from shared.kit.errors import InvalidMessage
from shared.streams import Entry, Streams

log = structlog.get_logger()

BLOCK_MS = 1000
PARSED_AT_ONCE = 25
"""Some milliseconds' worth: requests are served by the same event loop."""

_Rows = list[tuple[Entry, CopyRow]]


@dataclass(frozen=True)
class _Batch:
    """Entries of one reading: those that can be stored, and the others with the reason."""

    good: _Rows
    bad: list[tuple[Entry, str]]

    @property
    def size(self) -> int:
        return len(self.good) + len(self.bad)


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
        self._ahead: _Batch | None = None
        self._claimed_at_s = float("-inf")

    async def step(self) -> int:
        """One batch; its size. Own entries left by a crash first, then those that others left, then new ones."""
        try:
            batch, self._ahead = self._ahead, None
            if batch is None:
                batch = await self._parsed(await self._next_entries())
            if batch.size:
                await self._record_and_read_on(batch)
        except BaseException:
            self._own_pending, self._ahead = True, None  # what was claimed and not acknowledged has to be read again
            raise
        return batch.size

    async def _record_and_read_on(self, batch: _Batch) -> None:
        """While a full batch is being stored the next one is read; what is not acknowledged by then is not new."""
        if self._own_pending or batch.size < self._settings.recorder_batch_size:
            await self._record(batch)
            return
        recording = asyncio.create_task(self._record(batch))
        try:
            self._ahead = await self._parsed(await self._read_new(block_ms=0))
            await recording
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _next_entries(self) -> list[Entry]:
        name, size = self._settings.recorder_name, self._settings.recorder_batch_size
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
        return await self._read_new(block_ms=BLOCK_MS)

    async def _read_new(self, *, block_ms: int) -> list[Entry]:
        name, size = self._settings.recorder_name, self._settings.recorder_batch_size
        return await self._streams.read(STREAM_GENERATIONS, GROUP_RECORDER, name, count=size, block_ms=block_ms)

    async def _parsed(self, entries: Sequence[Entry]) -> _Batch:
        """Every entry, parsed or with the reason why it cannot be; requests get their turn in between."""
        batch = _Batch([], [])
        for number, entry in enumerate(entries, start=1):
            try:
                batch.good.append((entry, self._row(entry.payload)))
            except InvalidMessage as error:
                batch.bad.append((entry, str(error)))
            if number % PARSED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return batch

    def _row(self, payload: bytes) -> CopyRow:
        generation = _parse(payload)
        kept = without_secrets(generation, keep=self._settings.keeps_secrets_of(generation.project_id))
        for kind in kept.kinds:
            self._metrics.secrets.labels(kind).inc()
        return copy_row(kept.generation, prompt_digest(generation.prompt))

    async def _record(self, batch: _Batch) -> None:
        for entry, reason in batch.bad:
            await self._put_aside(entry, reason)
        stored = await self._store(batch.good)
        await self._streams.ack(STREAM_GENERATIONS, GROUP_RECORDER, [entry.entry_id for entry in stored])
        self._metrics.generations.inc(len(stored))

    async def _store(self, rows: _Rows) -> list[Entry]:
        """The entries that are committed. What PostgreSQL refuses is found by halving, and put aside alone."""
        if not rows:
            return []
        try:
            async with self._sessions.begin() as session:
                await copy_generations(session, [row for _, row in rows])
                revived = await self._revive(session, rows)
        except DBAPIError as error:
            if not is_refusal(error):
                raise
            if len(rows) == 1:
                await self._put_aside(rows[0][0], "refused_by_database")
                return []
            half = len(rows) // 2
            return await self._store(rows[:half]) + await self._store(rows[half:])
        self._metrics.revived.inc(revived)
        return [entry for entry, _ in rows]

    async def _revive(self, session: AsyncSession, rows: _Rows) -> int:
        """Where generations come late, the events that may have been given up without them."""
        now = utc_now()
        late = late_keys((made_of(row) for _, row in rows), now, self._settings)
        return await revive_events(session, late, now, self._settings) if late else 0

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
