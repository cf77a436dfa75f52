"""Moves messages from the outbox to their streams, in order, at least once.

In: outbox rows without `sent_at`. Out: stream experience. A crash between sending and committing sends again; the
consumer knows a message by its id. What Redis loses after that, `resending.py` finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.metrics import IngestMetrics
from services.ingest.outbox_queries import begin_sending
from services.ingest.repository import Repository
from services.ingest.settings import IngestSettings
from shared.db.models import OutboxRow
from shared.kit.clock import Clock, utc_now
from shared.streams import Streams


class Relay:
    """One step sends one batch."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        streams: Streams,
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._streams = streams
        self._metrics = metrics
        self._clock = clock

    async def step(self) -> int:
        """Send the oldest unsent messages; how many."""
        async with self._sessions.begin() as session:
            repository = Repository(session)
            await begin_sending(session)
            rows = await repository.unsent(self._settings.ingest_batch_size)
            if rows:
                await self._send(rows)
                await repository.mark_sent([row.outbox_id for row in rows], self._clock())
        self._metrics.relayed.inc(len(rows))
        return len(rows)

    async def _send(self, rows: Sequence[OutboxRow]) -> None:
        for stream, messages in groupby(rows, key=lambda row: row.stream):
            await self._streams.append(stream, [row.payload for row in messages])

    async def prune(self) -> int:
        """Forget messages that were sent long ago. Nothing to hurry about: returns 0."""
        async with self._sessions.begin() as session:
            before = self._clock() - timedelta(seconds=self._settings.outbox_keep_s)
            await Repository(session).delete_sent(before)
        return 0
