"""From experience to the next version: what a trainer's round does, without its database.

Advantages, value tracker and mini-batches are `services.trainer`'s, the learner is its process. There is one round for
each full mini-batch, as with the default settings.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from services.trainer import batches, tracker
from services.trainer.advantages import ESTIMATORS
from services.trainer.batches import Limits, ScoredGroup
from services.trainer.learner_api import CheckpointRef, Sampled, SampleRequest, StepDone, TrainRequest
from services.trainer.learner_process import LearnerProcess
from services.trainer.settings import TrainerSettings
from services.trainer.tracker import Value
from shared.contracts.experience import Experience

BASE = CheckpointRef(version=0, lineage="base", folder=None)


class Policy:
    """The learner process and which version it is at."""

    def __init__(self, learner: LearnerProcess, settings: TrainerSettings, folder: Path) -> None:
        self._learner, self._settings, self._folder = learner, settings, folder
        self._limits = Limits(settings.max_staleness, settings.max_row_tokens, None)
        self._values: dict[str, Value] = {}
        self.now = BASE
        self.steps: list[StepDone] = []
        self.counts: Counter[str] = Counter()

    def sample(self, prompts: list[str], *, n: int, temperature: float, seed: int, stop: list[str]) -> Sampled:
        """Completions of the newest version."""
        request = SampleRequest(
            base=self.now,
            prompts=prompts,
            n=n,
            max_tokens=self._settings.max_completion_tokens,
            temperature=temperature,
            stop=stop,
            seed=seed,
        )
        return self._learner.sample(request)

    def train(self, experiences: list[Experience]) -> None:
        """One round: one mini-batch, one step, one version; none where nothing has an advantage."""
        usable = [one for one in experiences if self._usable(one)]
        groups = [batches.scored_group(one, [], self._limits) for one in usable]
        plan = batches.plan_minibatch(groups, ESTIMATORS[self._settings.advantage], self._values)
        self._count(groups, plan)
        if plan.groups:
            target = self._target()
            done = self._learner.train(TrainRequest(base=self.now, target=target, minibatches=[plan.groups]))
            self.steps += done.steps
            if done.steps[0].skipped is None:
                self._forget(self.now)
                self.now = target
            else:
                self.counts[done.steps[0].skipped] += 1
        observed = [(group.bucket, group.experience.reward) for group in groups]
        self._values |= tracker.updated(self._values, observed, self._settings.tracker_decay)

    def _usable(self, experience: Experience) -> bool:
        reason = batches.triage(experience, self.now.version, self._limits)
        self.counts[reason or "usable"] += 1
        return reason is None

    def _count(self, groups: list[ScoredGroup], plan: batches.Plan) -> None:
        self.counts["samples"] += sum(len(group.samples) for group in groups)
        self.counts["known_rewards"] += len(plan.rewards)
        self.counts["zero_advantages"] += plan.zero_advantages
        self.counts["without_group_baseline"] += plan.lone + plan.equal
        self.counts["no_signal"] += len(plan.no_signal)

    def _target(self) -> CheckpointRef:
        version = self.now.version + 1
        return CheckpointRef(version=version, lineage=f"round-{version}", folder=str(self._folder / f"v{version:06d}"))

    @staticmethod
    def _forget(old: CheckpointRef) -> None:
        if old.folder is not None:
            shutil.rmtree(old.folder)
