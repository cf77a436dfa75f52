"""Measures the backlogs, for the metrics."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.metrics import IngestMetrics
from services.ingest.repository import Repository
from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.streams import Streams, dead_stream


class Gauges:
    """One step is one look."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], streams: Streams, metrics: IngestMetrics) -> None:
        self._sessions = sessions
        self._streams = streams
        self._metrics = metrics

    async def step(self) -> int:
        """Set all backlog gauges; returns 0, so that the loop rests."""
        async with self._sessions() as session:
            pending, open_outcomes, unsent = await Repository(session).backlog()
        self._metrics.pending_events.set(pending)
        self._metrics.open_outcomes.set(open_outcomes)
        self._metrics.outbox_backlog.set(unsent)
        self._metrics.generations_backlog.set(await self._streams.length(STREAM_GENERATIONS))
        for stream in (STREAM_GENERATIONS, STREAM_EXPERIENCE):
            self._metrics.dead_letters_waiting.labels(stream).set(await self._streams.length(dead_stream(stream)))
        return 0
