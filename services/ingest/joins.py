"""What the joiner made of the events: what `GET /v1/joins` answers. One statement, over a period of arrival."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Double, and_, cast, func, select, text, true
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.joining import NO_GENERATION
from services.ingest.settings import IngestSettings
from shared.db.models import FeedbackEventRow

AGES_S = (10, 60, 600)


class Sums(BaseModel):
    """Events by what became of them."""

    received: int = 0
    joined: int = 0
    ambiguous: int = 0
    """Several generations could be meant, and the choice would matter."""
    unmatched: int = 0
    pending: int = 0
    """Their generation may still arrive."""


class SourceJoins(Sums):
    """Those of one format."""

    source: str
    reasons: dict[str, int] = {}
    """Why events are unmatched or ambiguous."""


class Pending(BaseModel):
    """Events that wait for their generation."""

    count: int = 0
    oldest_age_s: float | None = None
    ages: dict[str, int] = {}
    """How many are younger than so many seconds (and not than fewer), and how many are older than all of these."""


class Joins(BaseModel):
    """Everything about one period."""

    since: datetime
    until: datetime
    totals: Sums
    joined_share: float | None
    """Of the events that do not wait any more."""
    reasons: dict[str, int]
    revivable: int
    """Unmatched for want of a generation, and young enough to be tried again if it arrives late."""
    pending: Pending
    sources: list[SourceJoins]


async def read_joins(
    session: AsyncSession,
    since: datetime,
    until: datetime,
    now: datetime,
    settings: IngestSettings,
    project_id: str | None = None,
) -> Joins:
    """The events that arrived in a period, of one project or of all."""
    row = FeedbackEventRow
    age_s = cast(func.extract("epoch", now - row.received_at), Double)
    edges: list[int | None] = [None, *AGES_S, None]
    bands = [_between(age_s, low, high) for low, high in pairwise(edges)]
    revivable = row.received_at > now - timedelta(seconds=settings.join_revive_s)
    query = (
        select(
            row.source,
            row.status,
            row.status_reason,
            func.count().label("events"),
            func.max(age_s).label("oldest"),
            func.count().filter(revivable).label("young"),
            *(func.count().filter(band).label(f"band_{number}") for number, band in enumerate(bands)),
        )
        .where(row.received_at >= since, row.received_at < until)
        .group_by(row.source, row.status, row.status_reason)
        .order_by(row.source)
    )
    if project_id is not None:
        query = query.where(row.project_id == project_id)
    await session.execute(text(f"SET LOCAL statement_timeout = {int(settings.figures_timeout_s * 1000)}"))
    report = _Report()
    for found in await session.execute(query):
        report.add(found.source, found.status, found.status_reason, found.events)
        if found.status == "pending":
            report.wait(found.events, found.oldest, list(found[-len(bands) :]))
        elif found.status_reason == NO_GENERATION:
            report.revivable += found.young
    return report.joins(since, until)


def _between(age_s: ColumnElement[float], low: int | None, high: int | None) -> ColumnElement[bool]:
    """`low` itself included; None: no edge there."""
    inside = [] if low is None else [age_s >= low]
    return and_(true(), *inside, *([] if high is None else [age_s < high]))


class _Report:
    """Adds up the rows of the query."""

    def __init__(self) -> None:
        self.totals = Sums()
        self.sources: dict[str, SourceJoins] = {}
        self.reasons: dict[str, int] = {}
        self.pending = Pending()
        self.revivable = 0

    def add(self, source: str, status: str, reason: str | None, events: int) -> None:
        of_source = self.sources.setdefault(source, SourceJoins(source=source, reasons={}))
        for sums in (self.totals, of_source):
            sums.received += events
            setattr(sums, status, getattr(sums, status) + events)
        if reason is not None:
            for reasons in (self.reasons, of_source.reasons):
                reasons[reason] = reasons.get(reason, 0) + events

    def wait(self, events: int, oldest_s: float, bands: list[int]) -> None:
        names = [*(f"under_{edge}_s" for edge in AGES_S), f"from_{AGES_S[-1]}_s"]
        ages = {name: self.pending.ages.get(name, 0) + count for name, count in zip(names, bands, strict=True)}
        oldest = max(oldest_s, self.pending.oldest_age_s or 0.0)
        self.pending = Pending(count=self.pending.count + events, oldest_age_s=oldest, ages=ages)

    def joins(self, since: datetime, until: datetime) -> Joins:
        done = self.totals.received - self.totals.pending
        return Joins(
            since=since,
            until=until,
            totals=self.totals,
            joined_share=self.totals.joined / done if done else None,
            reasons=self.reasons,
            revivable=self.revivable,
            pending=self.pending,
            sources=list(self.sources.values()),
        )
