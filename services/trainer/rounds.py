"""A round: claim, sample, score, learn, commit, acknowledge, tell the publisher.

Each experience moves the durable weights exactly once, whatever dies when:

    before the commit   nothing counts; the entries are redelivered, the folder (if any) is removed as a leftover and
                        the learner goes back to the committed base; so it is where no step changed anything
    after the commit    the entries are redelivered, found in `trained_experience` and acknowledged without training

The commit is one transaction: the round, every experience's disposition (primary key: it counts once) and the tracker.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from services.trainer import batches, checkpoints, repository, skipped, tracker
from services.trainer.advantages import ESTIMATORS
from services.trainer.batches import Limits, Plan, ScoredGroup
from services.trainer.claims import Claims, Waiting
from services.trainer.failures import Failures
from services.trainer.held_back import HeldBack, minibatches
from services.trainer.learner_api import TrainRequest
from services.trainer.learner_process import Learner, LearnerDied, RoundAbandoned, RoundRefused
from services.trainer.metrics import TrainerMetrics
from services.trainer.round_state import Round
from services.trainer.settings import TrainerSettings
from services.trainer.siblings import SiblingSource
from services.trainer.stopping import Stopping
from shared.db.engine import unit_of_work
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import TemporaryError

log = structlog.get_logger()

Outcome = Literal["idle", "busy", "committed", "empty"]
_T = TypeVar("_T")
_POLL_S = 0.2


class Rounds:
    """One per worker; `tick` is called every second or so."""

    def __init__(
        self,
        *,
        settings: TrainerSettings,
        database: Engine,
        claims: Claims,
        siblings: SiblingSource,
        learner: Learner,
        metrics: TrainerMetrics,
        tell_publisher: Callable[[], None],
        stopping: Stopping,
        vocabulary: int | None = None,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._database = database
        self._claims = claims
        self._siblings = siblings
        self._learner = learner
        self._metrics = metrics
        self._tell_publisher = tell_publisher
        self._stopping = stopping
        self._clock = clock
        self._monotonic = monotonic
        self._root = Path(settings.checkpoint_root)
        self._limits = Limits(settings.max_staleness, settings.max_row_tokens, vocabulary)
        self._waiting = Waiting(settings)
        self._held_back = HeldBack()
        self._failures = Failures(
            pause_s=settings.trainer_tick_s, max_pause_s=settings.max_backoff_s, give_up_after=settings.max_failures
        )

    async def tick(self) -> Outcome:
        """One round if there is enough to learn from. Raises `TemporaryError`; nothing is lost then."""
        wanted = self._waiting.take(await self._claims.length(), self._monotonic())
        if not wanted or self._stopping.requested() or self._failures.pausing(self._monotonic()):
            return "idle"
        try:
            with repository.only_trainer(self._database) as mine:
                if not mine:
                    return "busy"
                return await self._round(self._failures.limit(wanted))
        except DBAPIError as error:
            raise TemporaryError(f"database: {type(error.orig).__name__}") from error

    async def _round(self, count: int) -> Outcome:
        seconds: dict[str, float] = {}
        with self._phase("claim", seconds):
            round_ = await self._open(count, seconds)
        if not round_.claim.entries:
            return "idle"
        try:
            await self._work(round_)
        except (LearnerDied, RoundRefused) as error:
            await self._failed(round_, error)
            raise
        if round_.in_vain:
            self._failures.failed(self._monotonic())
        else:
            self._failures.cleared()
        self._metrics.failures_in_row.set(self._failures.in_row)
        return await self._finish(round_)

    async def _work(self, round_: Round) -> None:
        """Everything up to the commit."""
        with self._phase("sample", round_.seconds):
            await self._group(round_)
        self._plan(round_)
        if round_.learnable:
            self._go_on()
            with self._phase("learn", round_.seconds):
                round_.trained = self._learner.train(self._request(round_), self._stopping.overdue)
        if round_.fresh:
            with self._phase("commit", round_.seconds):
                self._commit(round_)

    async def _open(self, count: int, seconds: dict[str, float]) -> Round:
        """Clear up after an earlier round, find the base and claim."""
        with unit_of_work(self._database) as session:
            newest = repository.newest_round(session)
            committed = repository.committed_folders(session)
        base = checkpoints.base_ref(newest, self._root)
        checkpoints.remove_leftovers(self._root, committed)
        self._metrics.committed_version.set(base.version)
        claim = await self._claims.claim(count)
        with unit_of_work(self._database) as session:
            counted = repository.already_counted(session, [one.experience_id for one in claim.experiences])
        return Round(
            round_id=str(uuid.uuid4()),
            started_at=self._clock(),
            base=base,
            claim=claim,
            fresh=[one for one in claim.experiences if one.experience_id not in counted],
            duplicates=len(counted) + len(claim.repeated),
            seconds=seconds,
        )

    async def _group(self, round_: Round) -> None:
        """Put aside what cannot be trained on; draw siblings for the rest and score them."""
        usable = []
        for experience in round_.fresh:
            self._metrics.staleness.observe(round_.staleness(experience))
            reason = batches.triage(experience, round_.base.version, self._limits)
            if reason == batches.STALE and self._settings.stale == "cap":
                round_.off_policy.add(experience.experience_id)
                reason = None
            if reason is None:
                usable.append(experience)
            else:
                round_.dispositions[experience.experience_id] = reason
        drawn = await self._unless_stopping(self._siblings.draw_all(usable))
        round_.groups = [
            batches.scored_group(
                experience, samples, self._limits, drawn_temperature=self._settings.sibling_temperature
            )
            for experience, samples in zip(usable, drawn, strict=True)
        ]

    def _plan(self, round_: Round) -> None:
        """Advantages, mini-batch by mini-batch."""
        with unit_of_work(self._database) as session:
            round_.values = repository.tracker_values(session, {group.bucket for group in round_.groups})
        estimator = ESTIMATORS[self._settings.advantage]
        for groups in self._minibatches(round_):
            plan = batches.plan_minibatch(groups, estimator, round_.values)
            round_.plans.append(plan)
            round_.dispositions |= dict.fromkeys(plan.no_signal, batches.NO_SIGNAL)
            self._observe(plan)
        for group in round_.groups:
            self._metrics.group_size.observe(len(group.samples))
            self._metrics.group_known.observe(len(group.known))

    def _minibatches(self, round_: Round) -> list[list[ScoredGroup]]:
        labels = [group.experience.label for group in round_.groups]
        failures = [self._held_back.failures(group.experience.experience_id) for group in round_.groups]
        places = minibatches(labels, failures, self._settings.minibatch_size)
        return [[round_.groups[place] for place in batch] for batch in places]

    def _observe(self, plan: Plan) -> None:
        self._metrics.advantages.inc(len(plan.rewards))
        self._metrics.zero_advantage.inc(plan.zero_advantages)
        self._metrics.without_baseline.labels(why="lone").inc(plan.lone)
        self._metrics.without_baseline.labels(why="equal").inc(plan.equal)

    def _request(self, round_: Round) -> TrainRequest:
        return TrainRequest(
            base=round_.base,
            target=checkpoints.target_ref(round_.base, round_.round_id, self._root),
            minibatches=round_.minibatches(),
            scalars=round_.figures(),
        )

    def _commit(self, round_: Round) -> None:
        """One transaction. A conflict (somebody counted one of these) rolls all of it back."""
        round_.settle()
        with unit_of_work(self._database) as session:
            repository.insert_round(session, round_.row(self._clock()))
            repository.insert_dispositions(session, round_.round_id, round_.dispositions)
            decay = self._settings.tracker_decay
            repository.save_tracker_values(session, tracker.updated(round_.values, round_.observations(), decay))

    async def _finish(self, round_: Round) -> Outcome:
        """After the commit nothing may undo it; what fails here is done again or is done by somebody else's tick."""
        self._count(round_)
        with self._phase("ack", round_.seconds):
            await self._claims.ack(round_.entry_ids)
            await self._hold_back(round_)
        self._waiting.reset()
        await self._claims.length()
        if round_.checkpoint is None:
            log.info("round without a checkpoint", dispositions=round_.tally(), held_back=len(round_.held))
            return "empty"
        version = round_.checkpoint.version
        log.info("round committed", version=version, dispositions=round_.tally(), seconds=round_.seconds)
        self._tell_publisher()
        self._housekeep()
        return "committed"

    async def _hold_back(self, round_: Round) -> None:
        """What was not finite stays claimed for the next round; what is not finite alone becomes a dead letter."""
        self._held_back.done(round_.dispositions)
        for experience_ids in round_.not_finite():
            given_up = self._held_back.failed(experience_ids)
            self._metrics.held_back.inc(len(experience_ids) - len(given_up))
            for experience_id in given_up:
                await self._claims.bury(round_.entry_of(experience_id), "non_finite: its loss or gradient, also alone")
            self._held_back.done(given_up)

    def _count(self, round_: Round) -> None:
        now = self._clock()
        for disposition, count in round_.tally().items():
            self._metrics.experience.labels(disposition=disposition).inc(count)
        self._metrics.experience.labels(disposition="duplicate").inc(round_.duplicates)
        for experience in round_.fresh:
            if round_.dispositions.get(experience.experience_id) == batches.TRAINED:
                self._metrics.feedback_age.observe((now - experience.feedback_at).total_seconds())
        self._metrics.rounds.labels(outcome="committed" if round_.checkpoint else "empty").inc()
        if round_.groups:
            figures = round_.figures()
            self._metrics.reward_shown.set(figures["reward/shown_mean"])
            self._metrics.reward_known.set(figures["reward/known_mean"])
            self._metrics.known_share.set(figures["group/known_share"])
            self._metrics.zero_share.set(figures["advantage/zero_share"])
        if round_.checkpoint:
            self._metrics.committed_version.set(round_.checkpoint.version)
        if round_.trained:
            for step in round_.trained.steps:
                self._metrics.step(step)
                if step.skipped:
                    why = skipped.why(step, self._settings.max_logprob_gap)
                    log.error("mini-batch not trained", reason=step.skipped, why=why, groups=step.groups)
            self._metrics.learner_rss_mb.set(round_.trained.done.peak_rss_mb)
            for tracker, lost in round_.trained.done.tracking_lost.items():
                self._metrics.tracking_lost.labels(tracker=tracker).inc(lost)

    def _housekeep(self) -> None:
        """Old checkpoints that nobody needs any more."""
        with unit_of_work(self._database) as session:
            committed = repository.committed_folders(session)
            uploaded = repository.newest_uploaded(session)
        try:
            checkpoints.remove_old(
                self._root, committed, keep=self._settings.keep_checkpoints, newest_uploaded=uploaded
            )
        except OSError as error:
            log.warning("old checkpoint not removed", error=type(error).__name__)

    async def _failed(self, round_: Round, error: TemporaryError) -> None:
        self._failures.failed(self._monotonic())
        self._metrics.failures_in_row.set(self._failures.in_row)
        self._metrics.rounds.labels(outcome="failed").inc()
        if self._failures.hopeless and len(round_.claim.entries) == 1:
            await self._claims.bury(round_.claim.entries[0], str(error))
            self._failures.cleared()

    def _go_on(self) -> None:
        if self._stopping.requested():
            raise RoundAbandoned("stopping: the round was abandoned before it was learned")

    async def _unless_stopping(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await, but give up soon after we were told to stop."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=_POLL_S))[0]:
            if self._stopping.requested():
                task.cancel()
                await asyncio.wait({task})
                self._go_on()
        return task.result()

    @contextmanager
    def _phase(self, name: str, seconds: dict[str, float]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds[name] = round(time.perf_counter() - started, 3)
        self._metrics.phase_seconds.labels(phase=name).observe(seconds[name])
