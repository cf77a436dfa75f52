"""Figures of one project from the ledger: what `GET /v1/stats` answers. The queries are here: they only read."""

from __future__ import annotations

from pydantic import BaseModel
from sqlalchemy import Integer, cast, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import ExperienceRow, FeedbackEventRow, GenerationRow, OutboxRow, OutcomeRow


class Displays(BaseModel):
    """Displays with feedback. `mean_reward` is over the resolved outcomes; None where there are none."""

    shown: int
    """All of them; those of clients that tell of every display are neither accepted nor rejected at first."""
    accepted: int
    """Some choice of it, or a part of one."""
    rejected: int
    acceptance_rate: float | None
    mean_reward: float | None


class VersionDisplays(Displays):
    """Those that one policy version sampled."""

    policy_version: int


class Events(BaseModel):
    """Stored feedback events by what became of them. `resolved`: their display has its final reward."""

    stored: int
    pending: int
    joined: int
    unmatched: int
    ambiguous: int
    resolved: int
    reasons: dict[str, int]
    """Why events were not joined."""


class ExperienceFigures(BaseModel):
    """Resolved displays: handed to the trainer or withheld, by reason. `unsent` are still in the outbox."""

    total: int
    handed_over: int
    withheld: dict[str, int]
    settled: int
    """Rejects of which it is known what the developer typed instead."""
    unsent: int


class Stats(BaseModel):
    """Everything."""

    project_id: str
    totals: Displays
    versions: list[VersionDisplays]
    events: Events
    experience: ExperienceFigures


async def read_stats(session: AsyncSession, project_id: str) -> Stats:
    """All figures of one project, from one snapshot."""
    versions = await _versions(session, project_id)
    return Stats(
        project_id=project_id,
        totals=await _totals(session, project_id),
        versions=versions,
        events=await _events(session, project_id),
        experience=await _experience(session, project_id),
    )


_DISPLAY = tuple_(OutcomeRow.key_id, OutcomeRow.client_completion_id)
"""May have several outcomes: one for each choice that an event named."""
_TOLD_OF = OutcomeRow.state != "settled"
"""Of what silent clients showed nobody knows whether it was looked at."""
_DISPLAYS = (
    func.count(_DISPLAY.distinct()).label("shown"),
    func.count(_DISPLAY.distinct()).filter(OutcomeRow.state == "accepted").label("accepted"),
    func.count(_DISPLAY.distinct()).filter(OutcomeRow.state == "rejected").label("rejected"),
    func.avg(OutcomeRow.reward).label("mean_reward"),
)


def _displays(shown: int, accepted: int, rejected: int, mean_reward: float | None) -> Displays:
    return Displays(
        shown=shown,
        accepted=accepted,
        rejected=rejected,
        acceptance_rate=accepted / shown if shown else None,
        mean_reward=mean_reward,
    )


async def _totals(session: AsyncSession, project_id: str) -> Displays:
    query = select(*_DISPLAYS).where(OutcomeRow.project_id == project_id, _TOLD_OF)
    return _displays(*(await session.execute(query)).one())


async def _versions(session: AsyncSession, project_id: str) -> list[VersionDisplays]:
    version = GenerationRow.policy_version
    query = (
        select(version, *_DISPLAYS)
        .join(GenerationRow, GenerationRow.generation_id == OutcomeRow.generation_id)
        .where(OutcomeRow.project_id == project_id, _TOLD_OF)
        .group_by(version)
        .order_by(version)
    )
    return [
        VersionDisplays(policy_version=number, **_displays(*figures).model_dump())
        for number, *figures in await session.execute(query)
    ]


async def _events(session: AsyncSession, project_id: str) -> Events:
    query = (
        select(
            FeedbackEventRow.status,
            FeedbackEventRow.status_reason,
            func.count(),
            func.coalesce(func.sum(cast(OutcomeRow.resolved_at.is_not(None), Integer)), 0),
        )
        .outerjoin(OutcomeRow, OutcomeRow.outcome_id == FeedbackEventRow.outcome_id)
        .where(FeedbackEventRow.project_id == project_id)
        .group_by(FeedbackEventRow.status, FeedbackEventRow.status_reason)
    )
    by_status = dict.fromkeys(("pending", "joined", "unmatched", "ambiguous"), 0)
    reasons: dict[str, int] = {}
    resolved = 0
    for status, reason, count, done in await session.execute(query):
        by_status[status] += count
        resolved += done
        if reason is not None:
            reasons[reason] = reasons.get(reason, 0) + count
    return Events(stored=sum(by_status.values()), resolved=resolved, reasons=reasons, **by_status)


async def _experience(session: AsyncSession, project_id: str) -> ExperienceFigures:
    query = (
        select(ExperienceRow.withheld, func.count())
        .where(ExperienceRow.project_id == project_id)
        .group_by(ExperienceRow.withheld)
    )
    rows = (await session.execute(query)).all()
    by_reason = {row.withheld: row[1] for row in rows if row.withheld is not None}
    handed_over = sum(row[1] for row in rows if row.withheld is None)
    settled = select(func.count()).where(OutcomeRow.project_id == project_id, OutcomeRow.reference_kind == "settled")
    unsent = (
        select(func.count())
        .select_from(OutboxRow)
        .join(ExperienceRow, ExperienceRow.experience_id == OutboxRow.message_id)
        .where(ExperienceRow.project_id == project_id, OutboxRow.sent_at.is_(None))
    )
    return ExperienceFigures(
        total=handed_over + sum(by_reason.values()),
        handed_over=handed_over,
        withheld=by_reason,
        settled=(await session.scalars(settled)).one(),
        unsent=(await session.scalars(unsent)).one(),
    )
