"""Events that were given up, and whose generation arrives all the same: late, after an outage of the stream.

The recorder calls it in the transaction that stores the generations, so that none is missed. A generation is late if
an event about it may have been given up by then. What is revived is tried once more by the joiner, with the joiner's
own rules: reviving an event too many does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import DateTime, Text, and_, column, or_, select, update, values
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.joining import NO_GENERATION, TEXT_DIFFERS
from services.ingest.settings import IngestSettings
from shared.db.models import FeedbackEventRow


@dataclass(frozen=True, slots=True)
class Made:
    """When a generation was made, and for whom."""

    key_id: str
    created_at: datetime


def late_keys(made: Iterable[Made], now: datetime, settings: IngestSettings) -> dict[str, datetime]:
    """The keys of generations that come late, each with the time of its earliest one. Pure."""
    given_up = now - timedelta(seconds=settings.join_grace_s)
    found: dict[str, datetime] = {}
    for one in made:
        if one.created_at < given_up:
            found[one.key_id] = min(one.created_at, found.get(one.key_id, one.created_at))
    return found


async def revive_events(
    session: AsyncSession, late: Mapping[str, datetime], now: datetime, settings: IngestSettings
) -> int:
    """Let the joiner try again what these keys sent since their earliest late generation; how many were given up.

    Also what waits already, because it may be given up just now without this generation having been seen.
    """
    skew, oldest = timedelta(seconds=settings.clock_skew_s), now - timedelta(seconds=settings.join_revive_s)
    columns = (column("key_id", Text), column("since", DateTime(timezone=True)))
    wanted = values(*columns, name="late").data([(key, max(at - skew, oldest)) for key, at in late.items()])
    row = FeedbackEventRow
    given_up = or_(
        row.status_reason == NO_GENERATION, and_(row.status_reason == TEXT_DIFFERS, row.named_generation_id.is_(None))
    )
    query = (
        select(row.event_id, row.status)
        .join(wanted, and_(wanted.c.key_id == row.key_id, row.received_at >= wanted.c.since))
        .where(or_(and_(row.status == "unmatched", given_up), row.status == "pending"))
        .order_by(row.event_id)
        .with_for_update(of=row)
    )
    found = (await session.execute(query)).all()
    if found:
        ids = [event_id for event_id, _ in found]
        again = {"status": "pending", "status_reason": None, "next_attempt_at": now}
        await session.execute(update(row).where(row.event_id.in_(ids)).values(**again))
    return sum(status == "unmatched" for _, status in found)
