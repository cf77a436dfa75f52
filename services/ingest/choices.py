"""What is known of the other choices of a request: which count by themselves, and which have counted already.

A request with several choices (`n`, `n_cmpl`) is one group, and each choice counts once. One with a verdict of its own
makes its own experience and is nobody's sibling: what the developer said about it and how much it is like another
choice may contradict each other. One that was handed over as a sibling with a reward, before anything was said about
it, is not trained on again when that comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from sqlalchemy import BigInteger, column, func, select, values
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import ExperienceRow, GenerationRow, OutcomeRow


async def lock_requests(session: AsyncSession, generation_ids: Collection[str]) -> None:
    """Until the commit nobody else resolves a choice of these generations' requests."""
    query = select(GenerationRow.request_id).where(GenerationRow.generation_id.in_(list(generation_ids)))
    numbers = sorted({_number(request_id) for request_id in (await session.scalars(query)).all()})
    if numbers:
        locks = values(column("lock", BigInteger), name="locks").data([(number,) for number in numbers])
        await session.execute(select(func.pg_advisory_xact_lock(locks.c.lock)))


async def with_verdict(session: AsyncSession, generation_ids: Collection[str]) -> set[str]:
    """Those of the generations of which a display is decided, resolved or not."""
    query = select(OutcomeRow.generation_id).where(
        OutcomeRow.generation_id.in_(list(generation_ids)), OutcomeRow.resolves_at.is_not(None)
    )
    return set((await session.scalars(query)).all())


async def counted_as_siblings(session: AsyncSession, generation_ids: Collection[str]) -> set[str]:
    """Those that were handed over as siblings with a known reward, by displays of these generations."""
    query = (
        select(func.unnest(ExperienceRow.siblings))
        .join(OutcomeRow, OutcomeRow.outcome_id == ExperienceRow.outcome_id)
        .where(OutcomeRow.generation_id.in_(list(generation_ids)), ExperienceRow.withheld.is_(None))
    )
    return set((await session.scalars(query)).all())


def _number(request_id: str) -> int:
    digest = hashlib.sha256(f"request\n{request_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
