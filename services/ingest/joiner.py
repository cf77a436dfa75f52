"""Finds the generation that each stored event speaks of, and opens or changes the outcome of that display.

In: pending rows of feedback_events. Out: outcomes; each event joined, ambiguous, unmatched, or to be tried again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.joining import (
    NO_GENERATION,
    NOTHING_SHOWN,
    Ambiguous,
    Candidate,
    Joined,
    Match,
    Unmatched,
    match,
    match_typed_ahead,
)
from services.ingest.metrics import IngestMetrics
from services.ingest.outcomes import Change, State, after_event
from services.ingest.repository import OutcomeKey, Repository
from services.ingest.settings import IngestSettings
from shared.contracts.experience import Label
from shared.contracts.names import STREAM_GENERATIONS
from shared.db.models import FeedbackEventRow, OutcomeRow
from shared.keys import DEFAULT_PROJECT
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import TemporaryError
from shared.streams import Streams

log = structlog.get_logger()

LONGEST_RETRY_S = 5.0
REDIS_BACK_S = 15.0
"""After an outage of Redis the gateway needs this long to hand over the generations that it kept."""
RETRY_AFTER_SHARE_OF_AGE = 0.25


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one step looks at."""

    repository: Repository
    now: datetime
    drained: bool
    """All generations that were emitted before the step began are in the ledger."""
    candidates: dict[int, list[Candidate]]
    outcomes: dict[OutcomeKey, OutcomeRow]
    opened: set[OutcomeKey] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)


class Joiner:
    """One step joins one batch in one transaction."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        streams: Streams,
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._streams = streams
        self._metrics = metrics
        self._clock = clock
        self._window = timedelta(seconds=settings.join_window_s)
        self._skew = timedelta(seconds=settings.clock_skew_s)
        self._stream_away_at: datetime | None = None

    async def step(self) -> int:
        """Try every event that is due; returns how many became final."""
        drained = await self._drained()
        async with self._sessions.begin() as session:
            repository = Repository(session)
            now = self._clock()
            events = await repository.pending_events(now, self._settings.ingest_batch_size)
            if not events:
                return 0
            batch = await self._load(repository, now, drained, events)
            for event in events:
                await self._handle(event, batch)
        self._count(events, batch)
        return sum(event.status != "pending" for event in events)

    async def _drained(self) -> bool:
        try:
            length = await self._streams.length(STREAM_GENERATIONS)
        except TemporaryError:
            self._stream_away_at = self._clock()
            return False
        away_at = self._stream_away_at
        return length == 0 and (away_at is None or self._clock() - away_at > timedelta(seconds=REDIS_BACK_S))

    async def _load(
        self, repository: Repository, now: datetime, drained: bool, events: list[FeedbackEventRow]
    ) -> _Batch:
        keys = {_key(event) for event in events}
        outcomes = await repository.outcomes_of(keys)
        new = [event.event_id for event in events if _key(event) not in outcomes]
        candidates = await repository.candidates(new, self._window, self._skew) if new else {}
        return _Batch(repository, now, drained, candidates, outcomes)

    async def _handle(self, event: FeedbackEventRow, batch: _Batch) -> None:
        if _key(event) in batch.opened:
            return  # the next step finds the outcome that this one has just opened
        outcome = batch.outcomes.get(_key(event))
        if outcome is not None:
            self._update(outcome, event, batch)
            return
        found = await self._find(event, batch)
        match found:
            case Joined():
                await self._open(event, found, batch)
            case Ambiguous(reason):
                event.status, event.status_reason = "ambiguous", reason
            case Unmatched(reason):
                self._wait_or_give_up(event, reason, batch)

    async def _find(self, event: FeedbackEventRow, batch: _Batch) -> Match:
        found = match(event.completion, batch.candidates.get(event.event_id, []))
        if found != Unmatched(NO_GENERATION):
            return found
        recent = await batch.repository.recent_of_key(event, self._window, self._skew)
        return match_typed_ahead(event.completion, event.prompt_sha256, recent)

    async def _open(self, event: FeedbackEventRow, joined: Joined, batch: _Batch) -> None:
        state, change = self._after(None, event, batch)
        outcome = _new_outcome(event, joined, state)
        if await batch.repository.add_outcome(outcome):
            _mark_joined(event, outcome)
            batch.changes.append(change)
        batch.opened.add(_key(event))  # if another process was faster, the next step finds its outcome

    def _update(self, outcome: OutcomeRow, event: FeedbackEventRow, batch: _Batch) -> None:
        before = State(_label(outcome.state), outcome.resolves_at, outcome.resolved_at is not None)
        state, change = self._after(before, event, batch)
        outcome.state, outcome.resolves_at = state.label, state.resolves_at
        outcome.first_event_at = min(outcome.first_event_at, event.received_at)
        outcome.last_event_at = max(outcome.last_event_at, event.received_at)
        _mark_joined(event, outcome)
        batch.changes.append(change)

    def _after(self, state: State | None, event: FeedbackEventRow, batch: _Batch) -> tuple[State, Change]:
        return after_event(
            state,
            accepted=event.accepted,
            received_at=event.received_at,
            now=batch.now,
            late_accept_window=timedelta(seconds=self._settings.late_accept_window_s),
        )

    def _wait_or_give_up(self, event: FeedbackEventRow, reason: str, batch: _Batch) -> None:
        """An event waits for its generation; longer than the grace only while the recorder lags behind."""
        age_s = (batch.now - event.received_at).total_seconds()
        over = age_s >= self._settings.join_grace_s and (batch.drained or age_s >= self._settings.join_window_s)
        if over or reason == NOTHING_SHOWN:
            event.status, event.status_reason = "unmatched", reason
            return
        wait_s = min(LONGEST_RETRY_S, max(self._settings.poll_interval_s, age_s * RETRY_AFTER_SHARE_OF_AGE))
        event.next_attempt_at = batch.now + timedelta(seconds=wait_s)

    def _count(self, events: list[FeedbackEventRow], batch: _Batch) -> None:
        for change in batch.changes:
            self._metrics.outcome_changes.labels(change).inc()
        for event in events:
            if event.status == "pending":
                continue
            self._metrics.joins.labels(event.status, event.status_reason or "").inc()
            if event.status == "joined":
                self._metrics.join_delay_s.observe((batch.now - event.received_at).total_seconds())
            else:
                reason = event.status_reason
                log.warning("event not joined", event_id=event.event_id, status=event.status, reason=reason)


def _key(event: FeedbackEventRow) -> OutcomeKey:
    return event.key_id, event.client_completion_id


def _label(state: str) -> Label:
    return "accepted" if state == "accepted" else "rejected"


def _new_outcome(event: FeedbackEventRow, joined: Joined, state: State) -> OutcomeRow:
    project_id = event.project_id
    if project_id == DEFAULT_PROJECT:  # the client named none: what it told the gateway counts
        project_id = joined.candidate.project_id
    return OutcomeRow(
        outcome_id=uuid.uuid4().hex,
        generation_id=joined.candidate.generation_id,
        key_id=event.key_id,
        project_id=project_id,
        client_completion_id=event.client_completion_id,
        state=state.label,
        shown_text=event.completion,
        credited_tokens=joined.credited_tokens,
        first_event_at=event.received_at,
        last_event_at=event.received_at,
        resolves_at=state.resolves_at,
    )


def _mark_joined(event: FeedbackEventRow, outcome: OutcomeRow) -> None:
    event.status, event.status_reason = "joined", None
    event.project_id = outcome.project_id
    event.generation_id, event.outcome_id = outcome.generation_id, outcome.outcome_id
