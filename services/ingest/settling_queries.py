"""Queries of the settling loop. Each look goes once over a table in a fixed order; its cursor is a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, exists, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.days import made_since
from services.ingest.outcomes import SETTLED
from shared.db.models import FeedbackEventRow, GenerationRow, ObservationRow, OutcomeRow, SettlingCursorRow

MOST_PROMPTS = 2_000
"""Of one key as many later requests are looked at in one step."""
MOST_OF_KEY = 500
"""By so many generations of a key and protocol it is told whether its client sends events."""
UNJOINED = ("pending", "unmatched", "ambiguous")

Cursor = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class Span:
    """Requests of one key after `since` and up to `until`."""

    key_id: str
    since: datetime
    until: datetime


async def lock_cursor(session: AsyncSession, name: str, beginning: datetime) -> SettlingCursorRow | None:
    """The row of a look, locked; None while another process takes that step."""
    first = {"name": name, "at": beginning, "last_id": ""}
    await session.execute(insert(SettlingCursorRow).values(first).on_conflict_do_nothing())
    query = select(SettlingCursorRow).where(SettlingCursorRow.name == name).with_for_update(skip_locked=True)
    return (await session.scalars(query)).one_or_none()


async def next_generations(
    session: AsyncSession, after: Cursor, until: datetime, limit: int
) -> Sequence[GenerationRow]:
    """Recorded after the cursor, in the order of recording."""
    query = (
        select(GenerationRow)
        .where(*_after(after, until, GenerationRow.recorded_at, GenerationRow.generation_id))
        .order_by(GenerationRow.recorded_at, GenerationRow.generation_id)
        .limit(limit)
    )
    return (await session.scalars(query)).all()


async def next_outcomes(
    session: AsyncSession, state: str, after: Cursor, until: datetime, limit: int
) -> Sequence[tuple[OutcomeRow, GenerationRow]]:
    """Outcomes of a state with their generations, in the order of resolution."""
    query = (
        select(OutcomeRow, GenerationRow)
        .join(GenerationRow, GenerationRow.generation_id == OutcomeRow.generation_id)
        .where(OutcomeRow.state == state, *_after(after, until, OutcomeRow.resolved_at, OutcomeRow.outcome_id))
        .order_by(OutcomeRow.resolved_at, OutcomeRow.outcome_id)
        .limit(limit)
    )
    return [(outcome, generation) for outcome, generation in await session.execute(query)]


async def requests_of(session: AsyncSession, span: Span) -> list[tuple[datetime, str]]:
    """Time and prompt of a key's requests, oldest first."""
    query = (
        select(GenerationRow.created_at, GenerationRow.prompt)
        .where(
            GenerationRow.key_id == span.key_id,
            GenerationRow.created_at > span.since,
            GenerationRow.created_at <= span.until,
            made_since(GenerationRow.generation_id, span.since),
            GenerationRow.choice_index == 0,
        )
        .order_by(GenerationRow.created_at)
        .limit(MOST_PROMPTS)
    )
    return [(at, prompt) for at, prompt in await session.execute(query)]


async def settled_places(session: AsyncSession, generation_ids: Collection[str]) -> dict[str, str]:
    """Settled text by generation id, where it is known."""
    query = select(ObservationRow.generation_id, ObservationRow.text).where(
        ObservationRow.generation_id.in_(list(generation_ids)),
        ObservationRow.kind == SETTLED,
        ObservationRow.outcome_id.is_(None),
    )
    return {generation_id: text or "" for generation_id, text in await session.execute(query)}


async def is_silent(session: AsyncSession, key_id: str, protocol: str, since: datetime, established: datetime) -> bool:
    """Whether this key's client of this protocol is in use since before `established` and sends no events."""
    recent = (
        select(GenerationRow.generation_id, GenerationRow.created_at)
        .where(
            GenerationRow.key_id == key_id,
            GenerationRow.protocol == protocol,
            GenerationRow.created_at >= since,
            made_since(GenerationRow.generation_id, since),
        )
        .order_by(GenerationRow.created_at.desc())
        .limit(MOST_OF_KEY)
        .subquery()
    )
    older = exists().where(
        GenerationRow.key_id == key_id,
        GenerationRow.protocol == protocol,
        GenerationRow.created_at.between(since, established),
        made_since(GenerationRow.generation_id, since),
    )
    spoke = exists().where(OutcomeRow.generation_id == recent.c.generation_id, OutcomeRow.source != SETTLED)
    unjoined = exists().where(
        FeedbackEventRow.status.in_(UNJOINED),
        FeedbackEventRow.next_attempt_at >= since,
        FeedbackEventRow.key_id == key_id,
    )
    established_and_quiet = select(older & ~unjoined & ~exists(select(recent.c.generation_id).where(spoke)))
    return bool(await session.scalar(established_and_quiet))


async def without_outcome(session: AsyncSession, generation_ids: Collection[str]) -> set[str]:
    """Those of the generations that no display tells of."""
    query = select(OutcomeRow.generation_id).where(OutcomeRow.generation_id.in_(list(generation_ids)))
    return set(generation_ids) - set((await session.scalars(query)).all())


def _after(after: Cursor, until: datetime, at: Any, ident: Any) -> list[ColumnElement[bool]]:
    """Rows behind the cursor. The first condition follows from the last; an index helps with it alone."""
    return [at >= after[0], at <= until, tuple_(at, ident) > after]
