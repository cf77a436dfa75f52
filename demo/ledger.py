"""What PostgreSQL says about a run. Reads only; every figure of the demo that can come from the ledger does.

Times are of the database rows; a row of `deployments` with status `live` is a publish that was verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Executable, Select, and_, case, func, or_, select

from shared.db.engine import make_engine, unit_of_work
from shared.db.models import (
    MOVED_WEIGHTS,
    DeploymentRow,
    ExperienceRow,
    FeedbackEventRow,
    GenerationRow,
    OutboxRow,
    OutcomeRow,
    TrainedExperienceRow,
    TrainingRoundRow,
)

_JOINED = FeedbackEventRow.status == "joined"
_LIVE = DeploymentRow.status == "live"
_TRAINED = TrainedExperienceRow.disposition.in_(MOVED_WEIGHTS)


@dataclass(frozen=True)
class Snapshot:
    """Where the loop stands."""

    events_stored: int
    events_joined: int
    events_resolved: int
    """Reached their end: joined with a final outcome, or found to belong to no generation."""
    events_pending: int
    outcomes_open: int
    outbox_unsent: int
    experience_sent: int
    """Handed to the trainer."""
    experience_done: int
    """Of those: committed with a round, trained or put aside with a reason."""
    experience_trained: int
    experience_counted: int
    """Sum over the rounds of what each says it trained: more than `experience_trained` means trained twice."""
    minibatches: int
    newest_version: int
    live_version: int
    publishes: int
    failed_publishes: int

    @property
    def waiting(self) -> int:
        """What is still on its way from a feedback event to a served version."""
        on_its_way = self.events_pending + self.outcomes_open + self.outbox_unsent
        return on_its_way + self.experience_sent - self.experience_done + self.newest_version - self.live_version

    @property
    def join_rate(self) -> float | None:
        """Of the events that were looked at to the end."""
        settled = self.events_stored - self.events_pending
        return self.events_joined / settled if settled else None


@dataclass(frozen=True)
class Verdict:
    """One final outcome, in the order of the feedback."""

    at: datetime
    accepted: bool
    reward: float
    version: int


@dataclass(frozen=True)
class Publish:
    """One verified load."""

    version: int
    started_at: datetime
    finished_at: datetime
    pause_s: float
    max_logprob_diff: float | None


@dataclass(frozen=True)
class Version:
    """What one policy version did."""

    version: int
    completions: int
    suggestions: int
    """Displays with a final outcome."""
    accepted: int
    reward: float | None
    trained: int
    published_at: datetime | None
    pause_s: float | None

    @property
    def acceptance(self) -> float | None:
        """Accepted of suggestions."""
        return self.accepted / self.suggestions if self.suggestions else None


class Ledger:
    """A connection to one stack's database."""

    def __init__(self, database_url: str) -> None:
        self._engine: Engine = make_engine(database_url)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def snapshot(self) -> Snapshot:
        """All counts, of one moment."""
        with unit_of_work(self._engine) as session:
            return Snapshot(**{name: int(session.scalar(query) or 0) for name, query in _SNAPSHOT.items()})

    def verdicts(self) -> list[Verdict]:
        """All final outcomes, ordered by their first event."""
        query = (
            select(OutcomeRow.first_event_at, OutcomeRow.state, OutcomeRow.reward, GenerationRow.policy_version)
            .join(GenerationRow, GenerationRow.generation_id == OutcomeRow.generation_id)
            .where(OutcomeRow.resolved_at.is_not(None))
            .order_by(OutcomeRow.first_event_at)
        )
        return [
            Verdict(at, state == "accepted", float(reward or 0), version)
            for at, state, reward, version in self._rows(query)
        ]

    def publishes(self) -> list[Publish]:
        """All verified loads, in order."""
        query = select(
            DeploymentRow.version,
            DeploymentRow.started_at,
            DeploymentRow.finished_at,
            DeploymentRow.pause_s,
            DeploymentRow.max_logprob_diff,
        )
        return [Publish(*row) for row in self._rows(query.where(_LIVE).order_by(DeploymentRow.finished_at))]

    def versions(self) -> list[Version]:
        """One entry per version that served or was published."""
        served = {row[0]: row[1:] for row in self._rows(_SERVED)}
        trained = dict(self._rows(select(TrainingRoundRow.version, TrainingRoundRow.trained)))
        first: dict[int, Publish] = {}
        for publish in self.publishes():
            first.setdefault(publish.version, publish)
        return [
            _version(number, served.get(number), trained.get(number, 0), first.get(number))
            for number in sorted(served.keys() | first.keys())
        ]

    def versions_served(self) -> set[int]:
        """Versions that at least one recorded generation was sampled from."""
        return {version for (version,) in self._rows(select(GenerationRow.policy_version).distinct())}

    def feedback_to_served_s(self) -> list[float]:
        """For each trained experience: seconds from its first event until weights that contain it were served."""
        first_live = (
            select(func.min(DeploymentRow.finished_at))
            .where(_LIVE, DeploymentRow.version >= TrainingRoundRow.version)
            .correlate(TrainingRoundRow)
            .scalar_subquery()
        )
        query = (
            select(func.extract("epoch", first_live - ExperienceRow.feedback_at))
            .join(TrainedExperienceRow, TrainedExperienceRow.experience_id == ExperienceRow.experience_id)
            .join(TrainingRoundRow, TrainingRoundRow.round_id == TrainedExperienceRow.round_id)
            .where(_TRAINED, first_live.is_not(None))
        )
        return [float(seconds) for (seconds,) in self._rows(query)]

    def dispositions(self) -> dict[str, int]:
        """What became of the experience that the trainer took."""
        query = select(TrainedExperienceRow.disposition, func.count()).group_by(TrainedExperienceRow.disposition)
        return dict(self._rows(query))

    def _rows(self, query: Executable) -> Sequence[Any]:
        with unit_of_work(self._engine) as session:
            return session.execute(query).all()


def _version(number: int, served: Sequence[Any] | None, trained: int, publish: Publish | None) -> Version:
    completions, suggestions, accepted, reward = served or (0, 0, 0, None)
    return Version(
        version=number,
        completions=completions,
        suggestions=suggestions,
        accepted=accepted or 0,
        reward=reward,
        trained=trained,
        published_at=publish.finished_at if publish else None,
        pause_s=publish.pause_s if publish else None,
    )


_SERVED = (
    select(
        GenerationRow.policy_version,
        func.count(GenerationRow.generation_id.distinct()),
        func.count(OutcomeRow.outcome_id),
        func.sum(case((OutcomeRow.state == "accepted", 1), else_=0)),
        func.avg(OutcomeRow.reward),
    )
    .outerjoin(
        OutcomeRow,
        and_(OutcomeRow.generation_id == GenerationRow.generation_id, OutcomeRow.resolved_at.is_not(None)),
    )
    .group_by(GenerationRow.policy_version)
)

_EVENT_ENDED = or_(
    FeedbackEventRow.status.in_(["unmatched", "ambiguous"]), and_(_JOINED, OutcomeRow.resolved_at.is_not(None))
)

_SNAPSHOT: dict[str, Select[Any]] = {
    "events_stored": select(func.count()).select_from(FeedbackEventRow),
    "events_joined": select(func.count()).select_from(FeedbackEventRow).where(_JOINED),
    "events_resolved": select(func.count())
    .select_from(FeedbackEventRow)
    .outerjoin(OutcomeRow, OutcomeRow.outcome_id == FeedbackEventRow.outcome_id)
    .where(_EVENT_ENDED),
    "events_pending": select(func.count()).select_from(FeedbackEventRow).where(FeedbackEventRow.status == "pending"),
    "outcomes_open": select(func.count())
    .select_from(OutcomeRow)
    .outerjoin(ExperienceRow, ExperienceRow.outcome_id == OutcomeRow.outcome_id)
    .where(ExperienceRow.outcome_id.is_(None)),
    "outbox_unsent": select(func.count()).select_from(OutboxRow).where(OutboxRow.sent_at.is_(None)),
    "experience_sent": select(func.count()).select_from(ExperienceRow).where(ExperienceRow.withheld.is_(None)),
    "experience_done": select(func.count()).select_from(TrainedExperienceRow),
    "experience_trained": select(func.count()).select_from(TrainedExperienceRow).where(_TRAINED),
    "experience_counted": select(func.sum(TrainingRoundRow.trained)),
    "minibatches": select(func.sum(TrainingRoundRow.minibatches)),
    "newest_version": select(func.max(TrainingRoundRow.version)),
    "live_version": select(DeploymentRow.version).where(_LIVE).order_by(DeploymentRow.finished_at.desc()).limit(1),
    "publishes": select(func.count()).select_from(DeploymentRow).where(_LIVE),
    "failed_publishes": select(func.count()).select_from(DeploymentRow).where(~_LIVE),
}
