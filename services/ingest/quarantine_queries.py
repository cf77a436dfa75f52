"""Queries of the quarantine: what keys did lately, and which of them nothing is learned from."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.patterns import Limits, Pattern, Rule
from shared.db.models import ExperienceRow, OutboxRow, QuarantineRow

WITHHELD = "quarantined"

_PATTERNS = text(
    """
    WITH displays AS (
        SELECT o.key_id, o.first_event_at, o.state = 'accepted' AS accepted,
               extract(epoch FROM o.first_event_at - g.created_at) - g.total_s AS reaction_s,
               (SELECT min(e.display_ms) FROM feedback_events e
                WHERE e.outcome_id = o.outcome_id AND e.accepted AND e.kind IN ('select', 'feedback')) AS told_ms
        FROM outcomes o
        JOIN generations g ON g.generation_id = o.generation_id
        LEFT JOIN quarantined_keys q ON q.key_id = o.key_id
        WHERE o.first_event_at > :since
          AND (q.key_id IS NULL OR (q.released_at IS NOT NULL AND o.first_event_at > q.released_at))
    ), minutes AS (
        SELECT key_id, max(accepts) AS most FROM (
            SELECT key_id, count(*) AS accepts FROM displays WHERE accepted
            GROUP BY key_id, date_trunc('minute', first_event_at)
        ) AS per_minute GROUP BY key_id
    )
    SELECT d.key_id,
           count(*) AS displays,
           count(*) FILTER (WHERE accepted) AS accepted,
           count(*) FILTER (WHERE accepted AND least(reaction_s * 1000, told_ms) < :fast_ms) AS fast,
           count(*) FILTER (WHERE accepted AND reaction_s < - cast(:skew_s AS double precision)) AS early,
           coalesce(max(m.most), 0) AS most_per_minute
    FROM displays d LEFT JOIN minutes m ON m.key_id = d.key_id
    GROUP BY d.key_id
    """
)


async def patterns(session: AsyncSession, since: datetime, limits: Limits, skew_s: float) -> list[Pattern]:
    """What every key did since then (a released one: since its release). Not those in quarantine."""
    values = {"since": since, "fast_ms": limits.fast_ms, "skew_s": skew_s}
    return [Pattern(**row) for row in (await session.execute(_PATTERNS, values)).mappings()]


async def quarantined(session: AsyncSession, key_ids: Collection[str]) -> set[str]:
    """Those of the keys that are in quarantine now."""
    query = select(QuarantineRow.key_id).where(
        QuarantineRow.key_id.in_(list(key_ids)), QuarantineRow.released_at.is_(None)
    )
    return set((await session.scalars(query)).all())


async def quarantine(session: AsyncSession, key_id: str, rule: Rule, evidence: dict[str, Any], now: datetime) -> bool:
    """Put a key into quarantine; False where it is there already."""
    values = {"rule": rule, "evidence": evidence, "since": now, "released_at": None}
    statement = insert(QuarantineRow).values(key_id=key_id, **values)
    statement = statement.on_conflict_do_update(
        index_elements=["key_id"], set_=values, where=QuarantineRow.released_at.is_not(None)
    )
    return (await session.scalar(statement.returning(QuarantineRow.key_id))) is not None


async def withdraw(session: AsyncSession, key_id: str) -> int:
    """Keep back what is still on its way to the stream; how many."""
    waiting = (
        select(ExperienceRow.experience_id)
        .join(OutboxRow, OutboxRow.message_id == ExperienceRow.experience_id)
        .where(ExperienceRow.key_id == key_id, OutboxRow.sent_at.is_(None))
        .with_for_update(of=OutboxRow, skip_locked=True)
    )
    ids = list((await session.scalars(waiting)).all())
    await session.execute(delete(OutboxRow).where(OutboxRow.message_id.in_(ids)))
    await session.execute(update(ExperienceRow).where(ExperienceRow.experience_id.in_(ids)).values(withheld=WITHHELD))
    return len(ids)


async def release(session: AsyncSession, key_id: str, now: datetime) -> bool:
    """Learn from a key again; False where it is not in quarantine."""
    statement = (
        update(QuarantineRow)
        .where(QuarantineRow.key_id == key_id, QuarantineRow.released_at.is_(None))
        .values(released_at=now)
    )
    return (await session.scalar(statement.returning(QuarantineRow.key_id))) is not None


async def all_quarantined(session: AsyncSession) -> list[tuple[QuarantineRow, int]]:
    """Every key that ever was, the latest first, each with how many of its experiences were withheld for it."""
    withheld = (
        select(func.count())
        .where(ExperienceRow.key_id == QuarantineRow.key_id, ExperienceRow.withheld == WITHHELD)
        .scalar_subquery()
    )
    rows = await session.execute(select(QuarantineRow, withheld).order_by(QuarantineRow.since.desc()))
    return [(row, count) for row, count in rows]


async def in_quarantine(session: AsyncSession) -> int:
    """How many keys are there now."""
    query = select(func.count()).select_from(QuarantineRow).where(QuarantineRow.released_at.is_(None))
    return (await session.scalars(query)).one()
