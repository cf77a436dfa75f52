"""Deletes generations, and everything that was made of them, in batches that are short transactions.

Nothing here commits. The ids by which the trainer knows what has counted (`trained_experience`) are never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from shared.contracts.ids import TIMED
from shared.db.models import (
    MOVED_WEIGHTS,
    ExperienceRow,
    FeedbackEventRow,
    GenerationRow,
    ObservationRow,
    OutboxRow,
    OutcomeRow,
    TrainedExperienceRow,
    TrainingRoundRow,
)

Erased = Counter[str]
"""Rows by table."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Some projects' data: of these, or of all but these."""

    projects: tuple[str, ...]
    others: bool = False

    def of(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """As a condition on a project id."""
        return column.not_in(self.projects) if self.others else column.in_(self.projects)


async def erase(session: AsyncSession, generation_ids: Collection[str], *, experience: bool) -> Erased:
    """These generations with their observations, outcomes, events and messages; with `experience` its rows too.

    Those that another loop works on just now are left out: whoever calls asks again.

    Experience holds no code; as long as it is there, it can be told which policy versions learned from a key.
    """
    ids = await _lock(session, generation_ids)
    outcome_ids = await _ids(session, OutcomeRow.outcome_id, OutcomeRow.generation_id.in_(ids))
    experience_ids = await _ids(session, ExperienceRow.experience_id, ExperienceRow.outcome_id.in_(outcome_ids))
    erased: Erased = Counter()
    erased["outbox"] = await _delete(session, OutboxRow, OutboxRow.message_id.in_(experience_ids))
    if experience:
        erased["experience"] = await _delete(session, ExperienceRow, ExperienceRow.experience_id.in_(experience_ids))
    of_generation = ObservationRow.generation_id.in_(ids) & ObservationRow.outcome_id.is_(None)
    of_outcome = ObservationRow.outcome_id.in_(outcome_ids)
    erased["observations"] = await _delete(session, ObservationRow, or_(of_generation, of_outcome))
    erased["feedback_events"] = await _delete(session, FeedbackEventRow, FeedbackEventRow.outcome_id.in_(outcome_ids))
    erased["outcomes"] = await _delete(session, OutcomeRow, OutcomeRow.outcome_id.in_(outcome_ids))
    erased["generations"] = await _delete(session, GenerationRow, GenerationRow.generation_id.in_(ids))
    return erased


async def erase_events(session: AsyncSession, event_ids: Collection[int]) -> Erased:
    """Events that belong to no generation."""
    return Counter(feedback_events=await _delete(session, FeedbackEventRow, FeedbackEventRow.event_id.in_(event_ids)))


async def erase_experience(session: AsyncSession, key_id: str, limit: int) -> Erased:
    """Experience of a key whose generations are gone already, and its messages."""
    query = select(ExperienceRow.experience_id).where(ExperienceRow.key_id == key_id).limit(limit)
    ids = list((await session.scalars(query)).all())
    messages = await _delete(session, OutboxRow, OutboxRow.message_id.in_(ids))
    rows = await _delete(session, ExperienceRow, ExperienceRow.experience_id.in_(ids))
    return Counter(outbox=messages, experience=rows)


# --- what is due -----------------------------------------------------------------------------------------------------


async def first_recorded(session: AsyncSession, since: datetime) -> datetime | None:
    """When the first generation since then was recorded; None where there is none."""
    query = select(func.min(GenerationRow.recorded_at)).where(GenerationRow.recorded_at >= since)
    return (await session.scalars(query)).one()


async def recorded_between(
    session: AsyncSession, whose: Whose, since: datetime, until: datetime, limit: int, *, untimed: bool = False
) -> list[str]:
    """Generations that were recorded in [since, until), the oldest first. `untimed`: by their id in no day's table."""
    query = (
        select(GenerationRow.generation_id)
        .where(
            GenerationRow.recorded_at >= since,
            GenerationRow.recorded_at < until,
            whose.of(_project(GenerationRow)),
            *([GenerationRow.generation_id < TIMED] if untimed else []),
        )
        .order_by(GenerationRow.recorded_at)
        .limit(limit)
    )
    return list((await session.scalars(query)).all())


async def loose_events_before(
    session: AsyncSession, whose: Whose, before: datetime, after_id: int, limit: int
) -> Sequence[int]:
    """Events without an outcome that were received before then, with larger ids than `after_id`."""
    query = (
        select(FeedbackEventRow.event_id)
        .where(
            FeedbackEventRow.event_id > after_id,
            FeedbackEventRow.received_at < before,
            FeedbackEventRow.outcome_id.is_(None),
            whose.of(_project(FeedbackEventRow)),
        )
        .order_by(FeedbackEventRow.event_id)
        .limit(limit)
    )
    return (await session.scalars(query)).all()


async def generations_of_key(session: AsyncSession, key_id: str, limit: int) -> list[str]:
    """Some of a key's."""
    query = select(GenerationRow.generation_id).where(GenerationRow.key_id == key_id).limit(limit)
    return list((await session.scalars(query)).all())


async def events_of_key(session: AsyncSession, key_id: str, after_id: int, limit: int) -> list[int]:
    """A key's events with larger ids than `after_id`."""
    query = (
        select(FeedbackEventRow.event_id)
        .where(FeedbackEventRow.event_id > after_id, FeedbackEventRow.key_id == key_id)
        .order_by(FeedbackEventRow.event_id)
        .limit(limit)
    )
    return list((await session.scalars(query)).all())


async def counts_of_key(session: AsyncSession, key_id: str) -> dict[str, int]:
    """Rows of a key, by table."""
    tables = (GenerationRow, FeedbackEventRow, OutcomeRow, ObservationRow, ExperienceRow)
    counts = {}
    for table in tables:
        query = select(func.count()).select_from(table).where(table.key_id == key_id)
        counts[table.__tablename__] = (await session.scalars(query)).one()
    messages = (
        select(func.count())
        .select_from(OutboxRow)
        .join(ExperienceRow, ExperienceRow.experience_id == OutboxRow.message_id)
    )
    counts["outbox"] = (await session.scalars(messages.where(ExperienceRow.key_id == key_id))).one()
    return counts


async def versions_trained_on(session: AsyncSession, key_id: str) -> list[int]:
    """Policy versions whose round moved the weights by this key's experience; every later one builds on them."""
    query = (
        select(TrainingRoundRow.version)
        .join(TrainedExperienceRow, TrainedExperienceRow.round_id == TrainingRoundRow.round_id)
        .join(ExperienceRow, ExperienceRow.experience_id == TrainedExperienceRow.experience_id)
        .where(
            ExperienceRow.key_id == key_id,
            TrainedExperienceRow.disposition.in_(MOVED_WEIGHTS),
            TrainingRoundRow.version.is_not(None),
        )
        .distinct()
    )
    return sorted(version for version in (await session.scalars(query)).all() if version is not None)


def _project(table: type[GenerationRow] | type[FeedbackEventRow]) -> ColumnElement[str]:
    return table.__table__.c.project_id


async def _lock(session: AsyncSession, generation_ids: Collection[str]) -> list[str]:
    """Those that nobody else has locked, with all their outcomes. It never waits, so it cannot deadlock.

    Until the commit nobody opens another display of them.
    """
    free = select(GenerationRow.generation_id).where(GenerationRow.generation_id.in_(generation_ids))
    ids = list((await session.scalars(free.with_for_update(skip_locked=True))).all())
    outcomes = select(OutcomeRow.outcome_id, OutcomeRow.generation_id).where(OutcomeRow.generation_id.in_(ids))
    locked = set((await session.scalars(outcomes.with_for_update(skip_locked=True))).all())
    busy = {generation_id for outcome_id, generation_id in await session.execute(outcomes) if outcome_id not in locked}
    return [one for one in ids if one not in busy]


async def _ids(session: AsyncSession, column: InstrumentedAttribute[str], where: ColumnElement[bool]) -> list[str]:
    return list((await session.scalars(select(column).where(where))).all())


async def _delete(session: AsyncSession, table: type, where: ColumnElement[bool]) -> int:
    result = await session.execute(delete(table).where(where).execution_options(synchronize_session=False))
    return int(cast(CursorResult[Any], result).rowcount)
