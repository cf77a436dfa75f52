"""Queries about messages that were sent and may be lost. Committing is the caller's."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ARRAY, Text, exists, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import OutboxRow, TrainedExperienceRow

SENDING = 7_110_415_109
"""Advisory lock: shared by relays from before they send until `sent_at` is committed."""


async def begin_sending(session: AsyncSession) -> None:
    """Until the commit, nobody looks for lost messages."""
    await session.execute(select(func.pg_advisory_xact_lock_shared(SENDING)))


async def hold_sending(session: AsyncSession) -> None:
    """Waits until every message that was sent is marked as sent; until the commit none is sent."""
    await session.execute(select(func.pg_advisory_xact_lock(SENDING)))


async def take_back_lost(session: AsyncSession, stream: str, there: Collection[str]) -> int:
    """Messages of `stream` that are neither `there` nor dealt with count as not sent; how many."""
    known = func.unnest(literal(list(there), ARRAY(Text))).column_valued("known")
    statement = (
        update(OutboxRow)
        .where(
            OutboxRow.stream == stream,
            OutboxRow.sent_at.is_not(None),
            ~exists().where(known == OutboxRow.message_id),
            ~exists().where(TrainedExperienceRow.experience_id == OutboxRow.message_id),
        )
        .values(sent_at=None)
        .returning(OutboxRow.outbox_id)
        .execution_options(synchronize_session=False)
    )
    return len((await session.scalars(statement)).all())
