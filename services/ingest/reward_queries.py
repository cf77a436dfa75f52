"""Queries about rewards: their definitions, what replays computed, and how far a replay has come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.rewards import NamedReward
from shared.db.models import (
    ExperienceRow,
    OutcomeRow,
    RewardDefinitionRow,
    RewardReplayRow,
    RewardRow,
    TrainedExperienceRow,
)

Cursor = tuple[datetime, str]
"""Time of resolution and id of an outcome."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which resolved outcomes: those after the cursor and up to a moment, of one project or of all."""

    after: Cursor
    until: datetime
    project_id: str | None = None

    def where(self) -> list[ColumnElement[bool]]:
        """As conditions on outcomes."""
        mine = [OutcomeRow.project_id == self.project_id] if self.project_id is not None else []
        place = tuple_(OutcomeRow.resolved_at, OutcomeRow.outcome_id)
        return [
            OutcomeRow.resolved_at <= self.until,
            OutcomeRow.resolved_at >= self.after[0],
            place > self.after,
            *mine,
        ]


async def define_rewards(session: AsyncSession, rewards: Collection[NamedReward]) -> None:
    """Keep the numbers behind these digests."""
    numbers = {reward.digest: reward.weights.model_dump() for reward in rewards}
    rows = [{"digest": digest, "weights": weights} for digest, weights in sorted(numbers.items())]
    if rows:
        await session.execute(insert(RewardDefinitionRow).values(rows).on_conflict_do_nothing())


async def count_outcomes(session: AsyncSession, scope: Scope) -> int:
    """How many outcomes are in the scope."""
    return (await session.scalars(select(func.count()).select_from(OutcomeRow).where(*scope.where()))).one()


async def next_outcomes(session: AsyncSession, scope: Scope, limit: int) -> Sequence[tuple[OutcomeRow, int]]:
    """The scope's first outcomes in the order of resolution, each with the policy version that it was sampled by."""
    query = (
        select(OutcomeRow, ExperienceRow.policy_version)
        .join(ExperienceRow, ExperienceRow.outcome_id == OutcomeRow.outcome_id)
        .where(*scope.where())
        .order_by(OutcomeRow.resolved_at, OutcomeRow.outcome_id)
        .limit(limit)
    )
    return [(row, version) for row, version in await session.execute(query)]


async def other_digests(session: AsyncSession, name: str, digests: Collection[str]) -> set[str]:
    """Digests other than these under which rewards of the name are stored."""
    query = select(RewardRow.digest).where(RewardRow.reward_name == name, RewardRow.digest.not_in(digests))
    return set((await session.scalars(query.distinct())).all())


async def store_rewards(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Insert, or bring up to date what the same reward made of less evidence."""
    if not rows:
        return
    statement = insert(RewardRow).values(list(rows))
    fresh = {name: statement.excluded[name] for name in ("digest", "reward", "terms", "computed_at")}
    await session.execute(statement.on_conflict_do_update(index_elements=["outcome_id", "reward_name"], set_=fresh))


async def replay_row(session: AsyncSession, replay_id: str) -> RewardReplayRow | None:
    """What is known of a replay, locked: one process at a time takes its next step."""
    return await session.get(RewardReplayRow, replay_id, with_for_update=True)


async def not_trained(session: AsyncSession, outcome_ids: Collection[str]) -> dict[str, ExperienceRow]:
    """Experience of these outcomes that no round has dealt with, by outcome id, locked."""
    counted = select(TrainedExperienceRow.experience_id)
    query = (
        select(ExperienceRow)
        .where(ExperienceRow.outcome_id.in_(list(outcome_ids)), ExperienceRow.experience_id.not_in(counted))
        .order_by(ExperienceRow.experience_id)
        .with_for_update()
    )
    return {row.outcome_id: row for row in (await session.scalars(query)).all()}
