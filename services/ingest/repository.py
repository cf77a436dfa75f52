"""Every query of ingest. One `Repository` lives as long as one unit of work; committing is its caller's.

Rows that a loop works on are locked with SKIP LOCKED, so that several processes may run the same loop.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Select,
    Text,
    and_,
    column,
    delete,
    exists,
    func,
    lateral,
    select,
    true,
    tuple_,
    update,
    values,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from services.ingest.days import made_since, of_requests
from services.ingest.displays import Choices, DisplayKey, display_of
from services.ingest.joining import Candidate
from services.ingest.outcomes import SETTLED
from services.ingest.places import BLANKS
from services.ingest.protocols import tabby
from services.ingest.rows import stop_string
from shared.db.models import ExperienceRow, FeedbackEventRow, GenerationRow, OutboxRow, OutcomeRow

CANDIDATES_PER_EVENT = 32
TYPED_AHEAD_CANDIDATES = 32
LATER_PROMPTS_PER_OUTCOME = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which later prompts could tell what was typed in the place of one outcome."""

    outcome_id: str
    since: datetime
    anchor: str


_CANDIDATE_COLUMNS = (
    GenerationRow.generation_id,
    GenerationRow.choice_index,
    GenerationRow.created_at,
    GenerationRow.project_id,
    GenerationRow.policy_version,
    GenerationRow.prompt,
    GenerationRow.text,
    GenerationRow.token_ids,
    GenerationRow.text_offsets,
    GenerationRow.finish_reason,
    GenerationRow.stop_reason,
    GenerationRow.sampling,
)
_CANDIDATE_FIELDS = [column.key for column in _CANDIDATE_COLUMNS[:-2]]


class Repository:
    """The ledger, within one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    # --- joining -----------------------------------------------------------------------------------------------

    async def pending_events(self, now: datetime, limit: int) -> list[FeedbackEventRow]:
        """Events whose next attempt is due, locked, in the order in which they came."""
        query = (
            select(FeedbackEventRow)
            .where(FeedbackEventRow.status == "pending", FeedbackEventRow.next_attempt_at <= now)
            .order_by(FeedbackEventRow.next_attempt_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        rows = (await self._session.scalars(query)).all()
        return sorted(rows, key=lambda row: (row.received_at, row.event_id))

    async def lock_displays(self, displays: Collection[DisplayKey]) -> None:
        """Until the commit nobody else opens or changes outcomes of these displays."""
        if displays:
            locks = values(column("lock", BigInteger), name="locks").data([(n,) for n in sorted(map(_lock, displays))])
            await self._session.execute(select(func.pg_advisory_xact_lock(locks.c.lock)))

    async def outcomes_of(self, displays: Collection[DisplayKey]) -> dict[DisplayKey, Choices]:
        """Existing outcomes of displays, locked."""
        query = (
            select(OutcomeRow)
            .where(tuple_(OutcomeRow.key_id, OutcomeRow.client_completion_id).in_(list(displays)))
            .order_by(OutcomeRow.outcome_id)
            .with_for_update()
        )
        found: dict[DisplayKey, Choices] = defaultdict(dict)
        for row in (await self._session.scalars(query)).all():
            found[display_of(row)][row.choice_index] = row
        return found

    async def named_candidates(self, event_ids: Collection[int]) -> dict[int, list[Candidate]]:
        """For each event the generation that it names, if that was made for the event's key."""
        if not event_ids:
            return {}
        query = (
            select(FeedbackEventRow.event_id, *_CANDIDATE_COLUMNS, _labelled(GenerationRow.generation_id))
            .join(GenerationRow, GenerationRow.generation_id == FeedbackEventRow.named_generation_id)
            .where(FeedbackEventRow.event_id.in_(list(event_ids)), GenerationRow.key_id == FeedbackEventRow.key_id)
        )
        return {event_id: [_candidate(columns)] for event_id, *columns in await self._session.execute(query)}

    async def candidates(
        self, event_ids: Collection[int], window: timedelta, skew: timedelta, *, rendered: bool = False
    ) -> dict[int, list[Candidate]]:
        """For each event the generations of its key and prompt from `window` before it, newest first.

        `rendered`: by the prompt that the gateway makes of the client's prefix and suffix, not by the client's own.
        """
        if not event_ids:
            return {}
        digest = FeedbackEventRow.rendered_sha256 if rendered else FeedbackEventRow.prompt_sha256
        newest = lateral(
            select(*_CANDIDATE_COLUMNS)
            .where(
                GenerationRow.key_id == FeedbackEventRow.key_id,
                GenerationRow.prompt_sha256 == digest,
                GenerationRow.created_at >= FeedbackEventRow.received_at - window,
                GenerationRow.created_at <= FeedbackEventRow.received_at + skew,
                made_since(GenerationRow.generation_id, FeedbackEventRow.received_at - window),
            )
            .order_by(GenerationRow.created_at.desc())
            .limit(CANDIDATES_PER_EVENT)
            .correlate(FeedbackEventRow)
        )
        query = (
            select(FeedbackEventRow.event_id, *newest.c, _labelled(newest.c.generation_id))
            .join(newest, true())
            .where(FeedbackEventRow.event_id.in_(list(event_ids)))
        )
        found: dict[int, list[Candidate]] = defaultdict(list)
        for event_id, *columns in await self._session.execute(query):
            found[event_id].append(_candidate(columns))
        return found

    async def recent_of_key(self, event: FeedbackEventRow, window: timedelta, skew: timedelta) -> list[Candidate]:
        """The newest generations of the event's key, whatever their prompt."""
        query = (
            select(*_CANDIDATE_COLUMNS, _labelled(GenerationRow.generation_id))
            .where(
                GenerationRow.key_id == event.key_id,
                GenerationRow.created_at.between(event.received_at - window, event.received_at + skew),
                made_since(GenerationRow.generation_id, event.received_at - window),
            )
            .order_by(GenerationRow.created_at.desc())
            .limit(TYPED_AHEAD_CANDIDATES)
        )
        return [_candidate(columns) for columns in await self._session.execute(query)]

    async def add_outcome(self, row: OutcomeRow) -> bool:
        """Store an outcome; False where another process has just made one for the same display."""
        columns = {c.name: getattr(row, c.name) for c in OutcomeRow.__table__.columns}
        statement = insert(OutcomeRow).values(columns).on_conflict_do_nothing().returning(OutcomeRow.outcome_id)
        return (await self._session.scalar(statement)) is not None

    # --- resolving ---------------------------------------------------------------------------------------------

    async def due_accepted(self, now: datetime, limit: int) -> list[OutcomeRow]:
        """Unresolved accepts, locked."""
        return await self._due(OutcomeRow.state == "accepted", now, limit)

    async def due_rejected(self, now: datetime, limit: int) -> list[OutcomeRow]:
        """Rejects that no accept can overrule any more and that are not resolved yet, locked.

        Without those of a sample of which another display is accepted and not resolved yet: that one goes first.
        """
        other = aliased(OutcomeRow)
        accepted_elsewhere = exists().where(
            other.generation_id == OutcomeRow.generation_id, other.state == "accepted", other.resolved_at.is_(None)
        )
        return await self._due(and_(OutcomeRow.state == "rejected", ~accepted_elsewhere), now, limit)

    async def due_settled(self, now: datetime, limit: int) -> list[OutcomeRow]:
        """Unresolved outcomes of clients that send no events, locked."""
        return await self._due(OutcomeRow.state == SETTLED, now, limit)

    async def _due(self, which: Any, now: datetime, limit: int) -> list[OutcomeRow]:
        query = (
            select(OutcomeRow)
            .where(OutcomeRow.resolved_at.is_(None), OutcomeRow.resolves_at <= now, which)
            .order_by(OutcomeRow.resolves_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return list((await self._session.scalars(query)).all())

    async def lock_generations(self, generation_ids: Collection[str]) -> dict[str, GenerationRow]:
        """Generations by id, locked, so that one sample is handed out by one resolver at a time."""
        query = (
            select(GenerationRow)
            .where(GenerationRow.generation_id.in_(list(generation_ids)))
            .order_by(GenerationRow.generation_id)
            .with_for_update(key_share=True)
        )
        return {row.generation_id: row for row in (await self._session.scalars(query)).all()}

    async def siblings(self, shown: Iterable[GenerationRow]) -> dict[str, list[GenerationRow]]:
        """Other choices of the same requests, by request id."""
        requests = {row.request_id for row in shown}
        keys = {(row.key_id, row.prompt_sha256) for row in shown}
        if not requests:
            return {}
        query = select(GenerationRow).where(
            tuple_(GenerationRow.key_id, GenerationRow.prompt_sha256).in_(list(keys)),
            GenerationRow.request_id.in_(requests),
            of_requests(GenerationRow.generation_id, requests),
        )
        found: dict[str, list[GenerationRow]] = defaultdict(list)
        for row in (await self._session.scalars(query.order_by(GenerationRow.choice_index))).all():
            found[row.request_id].append(row)
        return found

    async def labelled(self, generation_ids: Collection[str]) -> set[str]:
        """Those of the generations of which a display went to the trainer."""
        query = (
            select(OutcomeRow.generation_id)
            .join(ExperienceRow, ExperienceRow.outcome_id == OutcomeRow.outcome_id)
            .where(OutcomeRow.generation_id.in_(list(generation_ids)), ExperienceRow.withheld.is_(None))
        )
        return set((await self._session.scalars(query)).all())

    async def shown_again(self, outcome_ids: Collection[str]) -> set[str]:
        """Those of Tabby's displays whose sample was displayed again later: its plugins dismiss at every keystroke."""
        later = aliased(OutcomeRow)
        query = select(OutcomeRow.outcome_id).where(
            OutcomeRow.outcome_id.in_(list(outcome_ids)),
            OutcomeRow.source == tabby.SOURCE,
            exists().where(
                later.generation_id == OutcomeRow.generation_id, later.first_event_at > OutcomeRow.first_event_at
            ),
        )
        return set((await self._session.scalars(query)).all())

    async def filepaths(self, dedupe_keys: Collection[str]) -> dict[DisplayKey, str]:
        """File of each display, from its events."""
        query = select(FeedbackEventRow.key_id, FeedbackEventRow.client_completion_id, FeedbackEventRow.filepath).where(
            FeedbackEventRow.dedupe_key.in_(list(dedupe_keys))
        )
        return {(key_id, completion_id): path for key_id, completion_id, path in await self._session.execute(query)}

    async def later_prompts(self, wanted: Sequence[Wanted], grace: timedelta) -> tuple[datetime, dict[str, list[str]]]:
        """For each outcome (by id) later prompts of the same key that hold its anchor, oldest first.

        Those alone that were recorded after `since`, and up to `grace` after the outcome became final. Also the
        database's time, which is what `since` has to be the next time.
        """
        columns = (column("outcome_id", Text), column("since", DateTime(timezone=True)), column("anchor", Text))
        watched = values(*columns, name="watched").data([(w.outcome_id, w.since, w.anchor) for w in wanted])
        shown, later = GenerationRow.__table__.alias("shown"), GenerationRow.__table__.alias("later")
        prompts = lateral(
            select(later.c.prompt, later.c.created_at)
            .where(
                later.c.key_id == shown.c.key_id,
                later.c.created_at > shown.c.created_at,
                made_since(later.c.generation_id, shown.c.created_at),
                later.c.choice_index == 0,
                later.c.created_at <= OutcomeRow.resolves_at + grace,
                later.c.recorded_at > watched.c.since,
                func.strpos(func.translate(later.c.prompt, BLANKS, ""), watched.c.anchor) > 0,
            )
            .order_by(later.c.created_at)
            .limit(LATER_PROMPTS_PER_OUTCOME)
            .correlate(shown, watched, OutcomeRow)
        )
        query = (
            select(OutcomeRow.outcome_id, prompts.c.prompt)
            .join(watched, watched.c.outcome_id == OutcomeRow.outcome_id)
            .join(shown, shown.c.generation_id == OutcomeRow.generation_id)
            .join(prompts, true())
            .order_by(prompts.c.created_at)
        )
        found: dict[str, list[str]] = defaultdict(list)
        for outcome_id, prompt in await self._session.execute(query):
            found[outcome_id].append(prompt)
        return (await self._session.scalars(select(func.now()))).one(), found

    async def shown_prompts(self, generation_ids: Collection[str]) -> dict[str, str]:
        """Prompts of generations by id."""
        query = select(GenerationRow.generation_id, GenerationRow.prompt).where(
            GenerationRow.generation_id.in_(list(generation_ids))
        )
        rows = await self._session.execute(query)
        return {row.generation_id: row.prompt for row in rows}

    def add(self, *rows: ExperienceRow | OutboxRow) -> None:
        """Store new rows with the next flush."""
        self._session.add_all(rows)

    # --- relay -------------------------------------------------------------------------------------------------

    async def unsent(self, limit: int) -> list[OutboxRow]:
        """The oldest messages that have not reached their stream, locked."""
        query = (
            select(OutboxRow)
            .where(OutboxRow.sent_at.is_(None))
            .order_by(OutboxRow.outbox_id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return list((await self._session.scalars(query)).all())

    async def mark_sent(self, outbox_ids: Collection[int], now: datetime) -> None:
        """These messages are in their stream."""
        await self._session.execute(
            update(OutboxRow).where(OutboxRow.outbox_id.in_(list(outbox_ids))).values(sent_at=now)
        )

    async def delete_sent(self, before: datetime) -> None:
        """Forget messages that were sent before a moment."""
        await self._session.execute(delete(OutboxRow).where(OutboxRow.sent_at < before))

    # --- looking -----------------------------------------------------------------------------------------------

    async def backlog(self) -> tuple[int, int, int]:
        """Pending events, unresolved outcomes, unsent messages."""
        pending = await self._count(select(FeedbackEventRow.event_id).where(FeedbackEventRow.status == "pending"))
        open_outcomes = await self._count(
            select(OutcomeRow.outcome_id).where(OutcomeRow.resolved_at.is_(None), OutcomeRow.resolves_at.is_not(None))
        )
        unsent = await self._count(select(OutboxRow.outbox_id).where(OutboxRow.sent_at.is_(None)))
        return pending, open_outcomes, unsent

    async def _count(self, query: Select[Any]) -> int:
        return (await self._session.scalars(select(func.count()).select_from(query.subquery()))).one()

    async def check(self) -> None:
        """Raises where the ledger cannot be read, or its tables are not there."""
        await self._session.execute(select(FeedbackEventRow.event_id).limit(1))


def _lock(display: DisplayKey) -> int:
    digest = hashlib.sha256("\n".join(display).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _labelled(generation_id: Any) -> Any:
    return exists().where(OutcomeRow.generation_id == generation_id).label("labelled")


def _candidate(columns: Sequence[Any]) -> Candidate:
    *known, stop_reason, sampling, labelled = columns
    named = dict(zip(_CANDIDATE_FIELDS, known, strict=True))
    return Candidate(**named, stop_string=stop_string(stop_reason, sampling), labelled=labelled)
