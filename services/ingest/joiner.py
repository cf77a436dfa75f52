"""Finds the generation that each stored event speaks of, and opens or changes the outcome of that display.

In: pending rows of feedback_events. Out: outcomes; each event joined, ambiguous, unmatched, or to be tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.displays import (
    Choices,
    DisplayKey,
    display_of,
    listen,
    mark_joined,
    new_outcome,
    set_shown,
    set_state,
    set_told,
)
from services.ingest.joining import (
    NO_GENERATION,
    NOTHING_SHOWN,
    TEXT_DIFFERS,
    Ambiguous,
    Candidate,
    Joined,
    Match,
    Unmatched,
    match,
    match_named,
    match_typed_ahead,
)
from services.ingest.metrics import IngestMetrics
from services.ingest.outcomes import Change
from services.ingest.repository import Repository
from services.ingest.settings import IngestSettings
from services.ingest.told import measure_part
from shared.contracts.names import STREAM_GENERATIONS
from shared.db.models import FeedbackEventRow
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
    outcomes: dict[DisplayKey, Choices]
    opened: set[DisplayKey] = field(default_factory=set)
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
        self._late_accept_window = timedelta(seconds=settings.late_accept_window_s)
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
        named = [event for event in events if event.named_generation_id is not None]
        await repository.lock_displays({display_of(event) for event in named})
        outcomes = await repository.outcomes_of({display_of(event) for event in events})
        candidates = await repository.named_candidates([event.event_id for event in named])
        unnamed = [event for event in events if event.named_generation_id is None]
        new = [event.event_id for event in unnamed if display_of(event) not in outcomes]
        candidates |= await repository.candidates(new, self._window, self._skew)
        unknown = [event_id for event_id in new if event_id not in candidates]
        candidates |= await repository.candidates(unknown, self._window, self._skew, rendered=True)
        return _Batch(repository, now, drained, candidates, outcomes)

    async def _handle(self, event: FeedbackEventRow, batch: _Batch) -> None:
        if display_of(event) in batch.opened:
            return  # the next step finds the outcome that this one has just opened
        known = batch.outcomes.get(display_of(event), {})
        if event.named_generation_id is None and event.choice_index in known:
            self._update(known, event, None, batch)
            return
        found = await self._find(event, batch)
        match found:
            case Joined() if event.choice_index in known:
                self._update(known, event, found, batch)
            case Joined():
                await self._open(known, event, found, batch)
            case Ambiguous(reason):
                event.status, event.status_reason = "ambiguous", reason
            case Unmatched(reason):
                self._wait_or_give_up(event, reason, batch)

    async def _find(self, event: FeedbackEventRow, batch: _Batch) -> Match:
        candidates = batch.candidates.get(event.event_id, [])
        if event.named_generation_id is not None:
            return measure_part(event, match_named(candidates))
        found = match(event.completion, candidates)
        if found != Unmatched(NO_GENERATION):
            return found
        recent = await batch.repository.recent_of_key(event, self._window, self._skew)
        digests = {digest for digest in (event.prompt_sha256, event.rendered_sha256) if digest is not None}
        return match_typed_ahead(event.completion, digests, recent)

    async def _open(self, known: Choices, event: FeedbackEventRow, joined: Joined, batch: _Batch) -> None:
        changed, change = listen(known, event, self._late_accept_window)
        outcome = new_outcome(event, joined, changed.pop(event.choice_index))
        batch.opened.add(display_of(event))  # if another process was faster, the next step finds its outcome
        if not await batch.repository.add_outcome(outcome):
            return
        for choice, state in changed.items():
            set_state(known[choice], state)
        mark_joined(event, outcome)
        batch.changes.append(change)

    def _update(self, known: Choices, event: FeedbackEventRow, joined: Joined | None, batch: _Batch) -> None:
        """A display of an outcome that is there. Its text changes only where more of it is accepted than before."""
        changed, change = listen(known, event, self._late_accept_window)
        outcome = known[event.choice_index]
        for choice, state in changed.items():
            set_state(known[choice], state)
        if joined is not None and event.choice_index in changed and outcome.resolved_at is None:
            set_shown(outcome, event, joined)
        set_told(outcome, event, joined)
        mark_joined(event, outcome)
        batch.changes.append(change)

    def _wait_or_give_up(self, event: FeedbackEventRow, reason: str, batch: _Batch) -> None:
        """An event waits for its generation; longer than the grace only while the recorder lags behind."""
        age_s = (batch.now - event.received_at).total_seconds()
        over = age_s >= self._settings.join_grace_s and (batch.drained or age_s >= self._settings.join_window_s)
        never = reason == NOTHING_SHOWN or (reason == TEXT_DIFFERS and event.named_generation_id is not None)
        if over or never:
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
