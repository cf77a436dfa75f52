"""Computes a reward again over history, batch by batch.

In: resolved outcomes and their evidence. Out: a comparison; with `apply` also `rewards`, and with `hand_over` new
messages for experience that no round has dealt with. Without `apply` its transactions are read-only. Each batch is one
transaction that also keeps how far it came, so that a replay that was stopped goes on there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest import reward_queries as queries
from services.ingest.comparing import Comparison
from services.ingest.evidence import Evidence
from services.ingest.evidence_queries import evidence_of
from services.ingest.handing_over import hand_over
from services.ingest.reward_queries import Cursor, Scope
from services.ingest.rewards import ProjectRewards, Reward, reward_of
from shared.db.models import OutcomeRow, RewardReplayRow
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import SettingsError

BEGINNING: Cursor = (datetime.fromtimestamp(0, UTC), "")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be replayed."""

    reward: ProjectRewards
    compare: ProjectRewards | None = None
    """Compared with this reward; None: with the one that each display was given."""
    since: datetime | None = None
    project_id: str | None = None
    apply: bool = False
    hand_over: bool = False

    @property
    def replay_id(self) -> str:
        """The same wish has the same id, so that it goes on where it was stopped."""
        facts = [_digests(self.reward), _digests(self.compare) if self.compare else None]
        scope = [self.since and self.since.isoformat(), self.project_id, self.hand_over]
        return hashlib.sha256(orjson.dumps([*facts, *scope])).hexdigest()


@dataclass(slots=True)
class Progress:
    """How far it is. `done` of `total` outcomes; `resumed`: it went on with an earlier one's figures."""

    scope: Scope
    comparison: Comparison
    total: int = 0
    done: int = 0
    resumed: bool = False


class Replay:
    """One replay; `run` to the end, and call again after a crash."""

    def __init__(
        self, sessions: async_sessionmaker[AsyncSession], wish: Wish, *, batch_size: int = 500, clock: Clock = utc_now
    ) -> None:
        self._sessions = sessions
        self._wish = wish
        self._batch_size = batch_size
        self._clock = clock

    async def run(self, tell: Callable[[Progress], None] = lambda _: None, *, restart: bool = False) -> Progress:
        """Everything that was resolved by now. Raises `SettingsError` where the name is taken by other numbers."""
        progress = await self._begin(restart)
        tell(progress)
        while await self._step(progress):
            tell(progress)
        return progress

    async def _begin(self, restart: bool) -> Progress:
        async with self._sessions.begin() as session:
            kept = await self._kept(session) if self._wish.apply and not restart else None
            since = (self._wish.since, "") if self._wish.since else BEGINNING
            scope = Scope(since, self._clock(), self._wish.project_id)
            progress = Progress(scope, Comparison())
            if kept is not None:
                progress.scope = replace(scope, after=(kept.cursor_at, kept.cursor_id), until=kept.until)
                progress.comparison, progress.resumed = Comparison.from_json(kept.figures), True
            if self._wish.apply:
                await self._write_down(session, progress)
            progress.total = await queries.count_outcomes(session, progress.scope)
        return progress

    async def _kept(self, session: AsyncSession) -> RewardReplayRow | None:
        """The same replay, if it was stopped before its end."""
        row = await queries.replay_row(session, self._wish.replay_id)
        return row if row is not None and row.finished_at is None else None

    async def _write_down(self, session: AsyncSession, progress: Progress) -> None:
        rewards = {self._wish.reward.general, *self._wish.reward.own.values()}
        taken = await queries.other_digests(session, self._wish.reward.general.name, {one.digest for one in rewards})
        if taken:
            raise SettingsError(
                f"rewards named {self._wish.reward.general.name!r} are stored already with other numbers "
                f"({', '.join(sorted(taken))}): give the changed reward a new name"
            )
        await queries.define_rewards(session, rewards)
        await self._keep(session, progress, finished=False)

    async def _step(self, progress: Progress) -> bool:
        """One batch in one transaction; whether there may be more."""
        async with self._sessions.begin() as session:
            if not self._wish.apply:
                await session.execute(text("SET TRANSACTION READ ONLY"))
            found = await queries.next_outcomes(session, progress.scope, self._batch_size)
            outcomes = [row for row, _ in found]
            evidence = await evidence_of(session, outcomes)
            rewards = {row.outcome_id: self._reward(self._wish.reward, row, evidence) for row in outcomes}
            comparison = Comparison.from_json(progress.comparison.to_json())
            for row, version in found:
                comparison.add(version, self._before(row, evidence), _value(rewards[row.outcome_id]))
            scope = replace(progress.scope, after=_cursor(outcomes)) if outcomes else progress.scope
            if self._wish.apply:
                await self._apply(session, outcomes, rewards, comparison)
                await self._keep(session, replace(progress, scope=scope, comparison=comparison), finished=not outcomes)
        progress.scope, progress.comparison = scope, comparison
        progress.done += len(outcomes)
        return bool(outcomes)

    async def _apply(
        self,
        session: AsyncSession,
        outcomes: Sequence[OutcomeRow],
        rewards: Mapping[str, Reward | None],
        comparison: Comparison,
    ) -> None:
        now = self._clock()
        rows = [
            {
                "outcome_id": row.outcome_id,
                "reward_name": self._wish.reward.general.name,
                "digest": self._wish.reward.of(row.project_id).digest,
                "reward": reward.value,
                "terms": dict(reward.terms),
                "computed_at": now,
            }
            for row in outcomes
            if (reward := rewards[row.outcome_id]) is not None
        ]
        await queries.store_rewards(session, rows)
        comparison.stored += len(rows)
        if self._wish.hand_over and outcomes:
            comparison.handed_over += await hand_over(session, outcomes, self._wish.reward)

    async def _keep(self, session: AsyncSession, progress: Progress, *, finished: bool) -> None:
        row = RewardReplayRow(
            replay_id=self._wish.replay_id,
            reward_name=self._wish.reward.general.name,
            until=progress.scope.until,
            cursor_at=progress.scope.after[0],
            cursor_id=progress.scope.after[1],
            figures=progress.comparison.to_json(),
            finished_at=self._clock() if finished else None,
        )
        await session.merge(row)

    def _before(self, row: OutcomeRow, evidence: Mapping[str, Evidence]) -> float | None:
        if self._wish.compare is None:
            return row.reward
        return _value(self._reward(self._wish.compare, row, evidence))

    @staticmethod
    def _reward(rewards: ProjectRewards, row: OutcomeRow, evidence: Mapping[str, Evidence]) -> Reward | None:
        return reward_of(evidence[row.outcome_id], rewards.of(row.project_id).weights)


def _value(reward: Reward | None) -> float | None:
    return None if reward is None else reward.value


def _cursor(outcomes: Sequence[OutcomeRow]) -> Cursor:
    last = outcomes[-1]
    assert last.resolved_at is not None
    return last.resolved_at, last.outcome_id


def _digests(rewards: ProjectRewards) -> list[object]:
    own = sorted((project_id, one.digest) for project_id, one in rewards.own.items())
    return [rewards.general.name, rewards.general.digest, own]
