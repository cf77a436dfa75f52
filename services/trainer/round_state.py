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
from services.trainer.learner_api import LOGPROB_GAP, CheckpointRef, TrainGroup
from services.trainer.learner_process import TrainedRound
from services.trainer.tracker import Value
from shared.contracts.experience import Experience
from shared.db.models import MOVED_WEIGHTS, TrainingRoundRow
from shared.streams.protocol import Entry

TRAINED_STALE = "trained_stale"
"""Disposition of experience that is too old, trained with capped importance weights (`TABWISE_STALE=cap`)."""


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
    """By experience id: `trained` or `trained_stale`, or why not. What is held back has none."""
    held: set[str] = field(default_factory=set)
    """Experience ids whose mini-batch was not finite: neither counted nor acknowledged."""
    off_policy: set[str] = field(default_factory=set)
    """Experience ids that are too old, and trained all the same."""
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

    @property
    def checkpoint(self) -> CheckpointRef | None:
        """What the round made. None where no step changed anything: a folder that says the same again is a leftover."""
        if self.trained is None or all(step.skipped for step in self.trained.steps):
            return None
        return self.trained.done.target

    @property
    def in_vain(self) -> bool:
        """Whether the learner was asked, and no step changed anything."""
        return self.trained is not None and self.checkpoint is None

    @property
    def entry_ids(self) -> list[str]:
        """To acknowledge: all but those of what is held back."""
        kept = {self.entry_of(experience_id).entry_id for experience_id in self.held}
        return [entry_id for entry_id in self.claim.entry_ids if entry_id not in kept]

    def entry_of(self, experience_id: str) -> Entry:
        """The claimed entry of a claimed experience."""
        ids = [one.experience_id for one in self.claim.experiences]
        return self.claim.entries[ids.index(experience_id)]

    def minibatches(self) -> list[list[TrainGroup]]:
        """For the learner, too old groups marked."""
        return [
            [group.model_copy(update={"off_policy": group.group_id in self.off_policy}) for group in plan.groups]
            for plan in self.learnable
        ]

    def observations(self) -> list[tuple[str, float]]:
        """(bucket, reward) for the tracker, which follows today's policy and counts each experience once."""
        aside = self.held | self.off_policy
        return [
            (group.bucket, group.experience.reward)
            for group in self.groups
            if group.experience.experience_id not in aside
        ]

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
        """What became of the experience that went to the learner, by what its step says."""
        steps = self.trained.steps if self.trained else []
        skipped = {step.minibatch: step.skipped for step in steps}
        for index, plan in enumerate(self.learnable):
            if skipped.get(index) == batches.NON_FINITE:
                self.held |= set(plan.trained)
            else:
                refused = skipped.get(index) == LOGPROB_GAP
                self.dispositions |= {one: LOGPROB_GAP if refused else self._trained(one) for one in plan.trained}

    def not_finite(self) -> list[list[str]]:
        """Experience ids of each mini-batch that was not finite, after `settle`."""
        return [plan.trained for plan in self.learnable if self.held & set(plan.trained)]

    def _trained(self, experience_id: str) -> str:
        return TRAINED_STALE if experience_id in self.off_policy else batches.TRAINED

    def tally(self) -> dict[str, int]:
        """Experiences by disposition."""
        return dict(Counter(self.dispositions.values()))

    def row(self, committed_at: datetime) -> TrainingRoundRow:
        """For the ledger, after `settle`."""
        target = self.checkpoint
        return TrainingRoundRow(
            round_id=self.round_id,
            version=target.version if target else None,
            parent_version=self.base.version,
            checkpoint=Path(target.folder).name if target and target.folder else None,
            started_at=self.started_at,
            committed_at=committed_at,
            minibatches=len(self.learnable),
            trained=sum(count for name, count in self.tally().items() if name in MOVED_WEIGHTS),
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
