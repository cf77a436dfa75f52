"""Looks at what every key did lately, and puts into quarantine whoever did what nobody can.

In: outcomes. Out: rows of `quarantined_keys`, a log line and a metric each. The resolver withholds a quarantined key's
experience; an operator looks at the evidence and releases it (`python -m services.ingest.quarantine`).
"""

from __future__ import annotations

from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest import quarantine_queries as queries
from services.ingest.metrics import IngestMetrics
from services.ingest.patterns import Pattern, Rule, broken_rule, evidence
from services.ingest.settings import IngestSettings
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()


class Guard:
    """One step is one look."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._limits = settings.quarantine_limits
        self._sessions = sessions
        self._metrics = metrics
        self._clock = clock

    async def step(self) -> int:
        """Returns 0, so that the loop rests."""
        since = self._clock() - timedelta(seconds=self._settings.quarantine_window_s)
        async with self._sessions() as session:
            found = await queries.patterns(session, since, self._limits, self._settings.clock_skew_s)
        for pattern in found:
            rule = broken_rule(pattern, self._limits)
            if rule is not None:
                await self._quarantine(pattern, rule)
        async with self._sessions() as session:
            self._metrics.keys_in_quarantine.set(await queries.in_quarantine(session))
        return 0

    async def _quarantine(self, pattern: Pattern, rule: Rule) -> None:
        figures = evidence(pattern, self._limits)
        async with self._sessions.begin() as session:
            new = await queries.quarantine(session, pattern.key_id, rule, figures, self._clock())
            withdrawn = await queries.withdraw(session, pattern.key_id) if new else 0
        if new:
            self._metrics.quarantined.labels(rule).inc()
            log.warning("key quarantined", key_id=pattern.key_id, rule=rule, withdrawn=withdrawn, **figures)
