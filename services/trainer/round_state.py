"""What is known of one round, from claim to commit, and how it is written down. No I/O."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from services.trainer import batches
from services.trainer.batches import Plan, ScoredGroup
from services.trainer.claims import Claim
from services.trainer.learner_api import CheckpointRef
from services.trainer.learner_process import TrainedRound
from services.trainer.tracker import Value
from shared.contracts.experience import Experience
from shared.db.models import TrainingRoundRow


@dataclass
class Round:
    """What is known of one round so far."""

    round_id: str
    started_at: datetime
    base: CheckpointRef
    claim: Claim
    fresh: list[Experience]
    """Claimed, and not counted by an earlier round."""
    duplicates: int = 0
    """Claimed, but counted before; or twice in this claim."""
    dispositions: dict[str, str] = field(default_factory=dict)
    groups: list[ScoredGroup] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    """One per mini-batch."""
    values: dict[str, Value] = field(default_factory=dict)
    """The tracker before the round."""
    trained: TrainedRound | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def learnable(self) -> list[Plan]:
        """Mini-batches with something to learn."""
        return [plan for plan in self.plans if plan.groups]

    def staleness(self, experience: Experience) -> int:
        """Versions between the sampling of the shown completion and the base."""
        return max(0, self.base.version - experience.shown.policy_version)

    def figures(self) -> dict[str, float]:
        """The trainer's own scalars, for TensorBoard and `training_rounds.stats`; empty without any group."""
        if not self.groups:
            return {}
        rewards = [reward for plan in self.plans for reward in plan.rewards]
        staleness = [self.staleness(group.experience) for group in self.groups]
        samples = sum(len(group.samples) for group in self.groups)
        return {
            "reward/shown_mean": fmean(group.experience.reward for group in self.groups),
            "reward/known_mean": fmean(rewards),
            "group/known_share": len(rewards) / samples,
            "group/size_mean": samples / len(self.groups),
            "advantage/zero_share": sum(plan.zero_advantages for plan in self.plans) / len(rewards),
            "staleness/mean": fmean(staleness),
            "staleness/max": float(max(staleness)),
        }

    def settle(self) -> None:
        """Dispositions of what went to the learner: a step that was not finite has trained nothing."""
        steps = self.trained.steps if self.trained else []
        skipped = {step.minibatch for step in steps if step.skipped}
        for index, plan in enumerate(self.learnable):
            outcome = batches.NON_FINITE if index in skipped else batches.TRAINED
            self.dispositions |= dict.fromkeys(plan.trained, outcome)

    def tally(self) -> dict[str, int]:
        """Experiences by disposition."""
        return dict(Counter(self.dispositions.values()))

    def row(self, committed_at: datetime) -> TrainingRoundRow:
        """For the ledger, after `settle`."""
        target = self.trained.done.target if self.trained else None
        return TrainingRoundRow(
            round_id=self.round_id,
            version=target.version if target else None,
            parent_version=self.base.version,
            checkpoint=Path(target.folder).name if target and target.folder else None,
            started_at=self.started_at,
            committed_at=committed_at,
            minibatches=len(self.learnable),
            trained=self.tally().get(batches.TRAINED, 0),
            stats=self._stats(),
        )

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = {"seconds": self.seconds.copy(), "steps": [], **self.figures()}
        if self.trained:
            stats["steps"] = [finite(step.model_dump()) for step in self.trained.steps]
            stats["learner_s"] = self.trained.done.seconds
        return stats


def finite(figures: dict[str, Any]) -> dict[str, Any]:
    """Not a number becomes None: JSON, and PostgreSQL with it, knows no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
