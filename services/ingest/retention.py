"""Deletes what is older than its project may keep it: `TABWISE_RETENTION_DAYS`, `TABWISE_PROJECT_RETENTION`.

In: generations by the time at which they were recorded, and events that belong to none. Out: nothing of them is left
but `experience` (ids, labels, rewards; no code). One batch is one short transaction; the loop rests in between.

Projects that keep least lose row by row what is due. What every project has kept long enough goes by the day: first
the rows that something refers to, with all that does, then the day's whole table. So those who keep longest keep up to
a day more. Generations without a day's table are deleted row by row, whoever's they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest import erasing_queries as queries
from services.ingest import partitions
from services.ingest.erasing_queries import Erased, Whose
from services.ingest.metrics import IngestMetrics
from services.ingest.settings import IngestSettings
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
DROPPED_BY = timedelta(days=2)
"""What is due so long must be in no day's table, or that could not be dropped."""
SLICE = timedelta(hours=1)
"""Of recording time that one look covers, so that no look has to pass over all that others may keep."""


@dataclass
class _Policy:
    """How long some projects' data is kept, and up to where this process has looked."""

    whose: Whose
    keep: timedelta
    untimed: bool = False
    """Only generations that are in no day's table, by their id."""
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
        self._longest = _longest(settings)

    async def step(self) -> int:
        """How many rows were deleted; 0 when nothing is due."""
        return await self._day() or await self._rows()

    async def _day(self) -> int:
        """A batch of the oldest day, or the rest of it at once."""
        if self._longest is None:
            return 0
        before = self._clock() - self._longest
        async with self._sessions.begin() as session:
            oldest = next((part for part in await partitions.parts(session) if part.end <= before), None)
            last = await partitions.last_recorded(session, oldest) if oldest else None
            if oldest is None or (last is not None and last >= before):
                return 0
            ids = await partitions.referred_to(session, oldest, self._settings.retention_batch_size)
            erased = await queries.erase(session, ids, experience=False)
        if not ids:
            rows = await partitions.drop(self._sessions, oldest)
            erased = Counter(generations=rows or 0)
            log.info("day dropped", table=oldest.table, rows=rows)
        self._count(erased)
        return erased.total()

    async def _rows(self) -> int:
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
                ids = await queries.recorded_between(session, policy.whose, since, until, size, untimed=policy.untimed)
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


def _longest(settings: IngestSettings) -> timedelta | None:
    """How long those who keep longest do; None where some keep everything."""
    days = [settings.retention_days, *settings.project_retention.values()]
    return timedelta(days=max(days)) if all(days) else None


def _policies(settings: IngestSettings) -> list[_Policy]:
    """One per project with a time of its own, one for all others; none for those that keep everything.

    Of those that keep longest the days are dropped: of them only what is in none, and what no drop has taken.
    """
    own, longest = settings.project_retention, _longest(settings)
    times = [(Whose((project,)), timedelta(days=days)) for project, days in own.items() if days]
    if settings.retention_days:
        times.append((Whose(tuple(own), others=True), timedelta(days=settings.retention_days)))
    policies = [_Policy(whose, keep, untimed=keep == longest) for whose, keep in times]
    return policies + [_Policy(whose, keep + DROPPED_BY) for whose, keep in times if keep == longest]
