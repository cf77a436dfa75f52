"""Looks back: what later requests show of each completion's place, some time after it.

In: generations that were recorded, outcomes that were resolved, some time ago. Out: rows of `observations`, and an
outcome of its own (`settled`) where a client that sends no events can be seen to have written what was suggested.

Each look goes once over a table, a batch per transaction; where it is stands in a row that is written with the
observations. So a restart repeats nothing and leaves out nothing, and one process at a time takes a look's next step.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.evidence import RETENTION_AFTER_S
from services.ingest.metrics import IngestMetrics
from services.ingest.observations import RETENTION, TYPED_OUT, store_observations
from services.ingest.outcomes import SETTLED
from services.ingest.seen import Accepted, Request, Seen, Spot, look_for_retention, look_for_settled
from services.ingest.settings import IngestSettings
from services.ingest.settled import typed_out
from services.ingest.settling_queries import (
    Cursor,
    Span,
    is_silent,
    lock_cursor,
    next_generations,
    next_outcomes,
    requests_of,
    settled_places,
    without_outcome,
)
from services.ingest.silent import settled_outcome
from shared.db.models import GenerationRow, OutcomeRow
from shared.kit.clock import Clock, utc_now

SLACK = timedelta(seconds=5)
"""A request may be recorded so much later than it was made; then it is not seen."""
SETTLED_AFTER_S = (60, 600)
"""When after its recording it is looked what was written in a completion's place; the second time if it must be."""
TYPED_OUT_AFTER_S = (0, SETTLED_AFTER_S[-1])
"""When after a reject it is looked whether its text was written all the same."""

Batch = tuple[int, Cursor | None]
"""How many rows were looked at, and the place of the last one."""
Look = Callable[[AsyncSession, Cursor, datetime], Awaitable[Batch]]


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    after_s: int
    look: Look


class Settling:
    """One step takes the next batch of every look."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._metrics = metrics
        self._clock = clock
        self._looks = [
            *(_Named(f"settled-{s}", s, partial(self._settled, s)) for s in SETTLED_AFTER_S),
            *(_Named(f"retention-{s}", s, partial(self._retention, s)) for s in RETENTION_AFTER_S),
            *(_Named(f"typed_out-{s}", s, self._typed_out) for s in TYPED_OUT_AFTER_S),
        ]

    async def step(self) -> int:
        """A batch of every look. Always 0: it rests in any case, so that it takes little from those who wait."""
        await self.look()
        return 0

    async def look(self) -> int:
        """How many generations and outcomes were looked at."""
        return sum([await self._take(look) for look in self._looks])

    async def _take(self, look: _Named) -> int:
        now = self._clock()
        beginning = now - timedelta(seconds=self._settings.settling_lookback_s)
        async with self._sessions.begin() as session:
            cursor = await lock_cursor(session, look.name, beginning)
            if cursor is None:
                return 0
            until = now - timedelta(seconds=look.after_s) - SLACK
            count, last = await look.look(session, (cursor.at, cursor.last_id), until)
            if last is not None:
                cursor.at, cursor.last_id = last
            more = count >= self._settings.settling_batch_size
            behind_s = max(0.0, (until - cursor.at).total_seconds()) if more else 0.0
        self._metrics.settling_behind_s.labels(look.name).set(behind_s)
        return count

    # --- what was written in a completion's place ----------------------------------------------------------------

    async def _settled(self, after_s: int, session: AsyncSession, after: Cursor, until: datetime) -> Batch:
        generations = await next_generations(session, after, until, self._settings.settling_batch_size)
        if not generations:
            return 0, None
        known = await settled_places(session, [row.generation_id for row in generations])
        spots = [_spot(row) for row in generations if row.generation_id not in known]
        found: dict[str, Seen] = {}
        for key_id, of_key in _by_key(spots).items():
            later = await _requests(session, key_id, of_key, after_s)
            found |= await asyncio.to_thread(look_for_settled, of_key, later, timedelta(seconds=after_s))
        rows = {row.generation_id: row for row in generations}
        await store_observations(session, [_settled_row(rows[one], seen) for one, seen in found.items()])
        await self._silent([(rows[one], seen) for one, seen in found.items()], session)
        self._metrics.observed_settled.labels("yes").inc(len(found))
        if after_s == SETTLED_AFTER_S[-1]:
            self._metrics.observed_settled.labels("no").inc(len(spots) - len(found))
        return len(generations), (generations[-1].recorded_at, generations[-1].generation_id)

    async def _silent(self, seen: Sequence[tuple[GenerationRow, Seen]], session: AsyncSession) -> None:
        """Outcomes for clients that send no events, where what was suggested was written."""
        may = [(row, one) for row, one in seen if row.protocol in self._settings.silent]
        now = self._clock()
        since = now - timedelta(seconds=self._settings.silent_window_s)
        established = now - timedelta(seconds=self._settings.silent_after_s)
        silent = {
            client: await is_silent(session, *client, since, established)
            for client in sorted({(row.key_id, row.protocol) for row, _ in may})
        }
        free = await without_outcome(session, [row.generation_id for row, _ in may])
        requests: set[str] = set()
        for row, one in may:
            if row.generation_id not in free or row.request_id in requests or not silent[row.key_id, row.protocol]:
                continue
            outcome = settled_outcome(row, one, now)
            if outcome is not None:
                requests.add(row.request_id)
                session.add(outcome)
                self._metrics.silent_outcomes.inc()

    # --- what is left of accepted text ---------------------------------------------------------------------------

    async def _retention(self, after_s: int, session: AsyncSession, after: Cursor, until: datetime) -> Batch:
        batch = await next_outcomes(session, "accepted", after, until, self._settings.settling_batch_size)
        if not batch:
            return 0, None
        outcomes = {outcome.outcome_id: outcome for outcome, _ in batch}
        accepts = [
            Accepted(_spot(generation), outcome.outcome_id, outcome.shown_text, self._accepted_at(outcome))
            for outcome, generation in batch
        ]
        found: dict[str, Seen] = {}
        for key_id, of_key in _by_key([one.spot for one in accepts]).items():
            mine = [one for one in accepts if one.spot.key_id == key_id]
            later = await _requests(session, key_id, of_key, after_s, max(one.at for one in mine))
            found |= await asyncio.to_thread(look_for_retention, mine, later, timedelta(seconds=after_s))
        await store_observations(session, [_retention_row(outcomes[one], after_s, seen) for one, seen in found.items()])
        for seen in found.values():
            self._metrics.retention.labels(str(after_s)).observe(seen.value)
        self._metrics.retention_unknown.labels(str(after_s)).inc(len(batch) - len(found))
        return len(batch), _place(batch[-1][0])

    def _accepted_at(self, outcome: OutcomeRow) -> datetime:
        window = timedelta(seconds=self._settings.late_accept_window_s if outcome.accepted_part else 0)
        return (outcome.resolves_at or outcome.first_event_at) - window

    # --- rejected, and written all the same ----------------------------------------------------------------------

    async def _typed_out(self, session: AsyncSession, after: Cursor, until: datetime) -> Batch:
        batch = await next_outcomes(session, "rejected", after, until, self._settings.settling_batch_size)
        if not batch:
            return 0, None
        settled = await settled_places(session, [generation.generation_id for _, generation in batch])
        rows = []
        for outcome, generation in batch:
            reference = outcome.reference_text if outcome.reference_kind == SETTLED else None
            text = settled.get(generation.generation_id) or reference
            if text:
                rows.append(_typed_out_row(outcome, typed_out(text, outcome.shown_text), until))
        for typed in await store_observations(session, rows):
            self._metrics.typed_out.labels("yes" if typed else "no").inc()
        return len(batch), _place(batch[-1][0])


def _spot(row: GenerationRow) -> Spot:
    return Spot(row.generation_id, row.key_id, row.created_at, row.prompt, row.text)


def _by_key(spots: Sequence[Spot]) -> dict[str, list[Spot]]:
    found: dict[str, list[Spot]] = defaultdict(list)
    for spot in spots:
        found[spot.key_id].append(spot)
    return found


async def _requests(
    session: AsyncSession, key_id: str, spots: Sequence[Spot], after_s: int, last: datetime | None = None
) -> list[Request]:
    """The key's requests that are later than any of the spots, and not later than they may be."""
    times = [spot.created_at for spot in spots]
    until = max(last or max(times), max(times)) + timedelta(seconds=after_s)
    found = await requests_of(session, Span(key_id, min(times), until))
    return [Request(at, prompt) for at, prompt in found]


def _place(outcome: OutcomeRow) -> Cursor:
    assert outcome.resolved_at is not None  # it was selected by it
    return outcome.resolved_at, outcome.outcome_id


def _settled_row(row: GenerationRow, seen: Seen) -> dict[str, Any]:
    subject = {"generation_id": row.generation_id, "outcome_id": None, "key_id": row.key_id}
    return subject | {
        "project_id": row.project_id,
        "kind": SETTLED,
        "after_s": 0,
        "value": seen.value,
        "text": seen.text,
        "observed_at": seen.at,
    }


def _outcome_row(outcome: OutcomeRow) -> dict[str, Any]:
    names = ("generation_id", "outcome_id", "key_id", "project_id")
    return {name: getattr(outcome, name) for name in names} | {"text": None}


def _retention_row(outcome: OutcomeRow, after_s: int, seen: Seen) -> dict[str, Any]:
    return _outcome_row(outcome) | {
        "kind": RETENTION,
        "after_s": after_s,
        "value": seen.value,
        "observed_at": seen.at,
    }


def _typed_out_row(outcome: OutcomeRow, typed: bool, at: datetime) -> dict[str, Any]:
    return _outcome_row(outcome) | {"kind": TYPED_OUT, "after_s": 0, "value": float(typed), "observed_at": at}
