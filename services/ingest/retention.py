"""Deletes what is older than its project may keep it: `TABWISE_RETENTION_DAYS`, `TABWISE_PROJECT_RETENTION`.

In: generations by the time at which they were recorded, and events that belong to none. Out: nothing of them is left
but `experience` (ids, labels, rewards; no code). One batch is one short transaction; the loop rests in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest import erasing_queries as queries
from services.ingest.erasing_queries import Erased, Whose
from services.ingest.metrics import IngestMetrics
from services.ingest.settings import IngestSettings
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
SLICE = timedelta(hours=1)
"""Of recording time that one look covers, so that no look has to pass over all that others may keep."""


@dataclass
class _Policy:
    """How long some projects' data is kept, and up to where this process has looked."""

    whose: Whose
    keep: timedelta
    looked_until: datetime = BEGINNING
    event_id: int = 0


class Retention:
    """One step is one batch of one policy."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._metrics = metrics
        self._clock = clock
        self._policies = _policies(settings)

    async def step(self) -> int:
        """How many rows were deleted; 0 when nothing is due."""
        for policy in self._policies:
            before = self._clock() - policy.keep
            erased = await self._generations(policy, before) or await self._events(policy, before)
            if erased:
                self._count(erased)
                return erased.total()
        return 0

    async def _generations(self, policy: _Policy, before: datetime) -> Erased | None:
        """One batch, slice after slice of time; None where nothing is left."""
        size = self._settings.retention_batch_size
        while True:
            async with self._sessions.begin() as session:
                since = await queries.first_recorded(session, policy.looked_until)
                if since is None or since >= before:
                    return None
                until = min(since + SLICE, before)
                ids = await queries.recorded_between(session, policy.whose, since, until, size)
                erased = await queries.erase(session, ids, experience=False)
            left = len(ids) - erased["generations"]
            policy.looked_until = since if left or len(ids) == size else until
            if ids:
                return erased if erased.total() else None

    async def _events(self, policy: _Policy, before: datetime) -> Erased | None:
        async with self._sessions.begin() as session:
            size = self._settings.retention_batch_size
            ids = await queries.loose_events_before(session, policy.whose, before, policy.event_id, size)
            if not ids:
                return None
            policy.event_id = ids[-1]
            return await queries.erase_events(session, ids)

    def _count(self, erased: Erased) -> None:
        for table, rows in erased.items():
            if rows:
                self._metrics.erased.labels(table).inc(rows)


def _policies(settings: IngestSettings) -> list[_Policy]:
    """One per project with a time of its own, one for all others; none for those that keep everything."""
    own = settings.project_retention
    policies = [_Policy(Whose((project,)), timedelta(days=days)) for project, days in own.items() if days]
    if settings.retention_days:
        policies.append(_Policy(Whose(tuple(own), others=True), timedelta(days=settings.retention_days)))
    return policies
