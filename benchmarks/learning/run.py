"""One algorithm, one seed: developers at work, learning as they go, measured every so many events."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.learning.algorithms import SERVING_TEMPERATURE, Algorithm
from benchmarks.learning.evaluation import HeldOut
from benchmarks.learning.product import Judged, Waiting, experience
from benchmarks.learning.reference import BaseModel
from benchmarks.learning.results import Point, Result
from benchmarks.learning.team import Developer, make_team
from benchmarks.learning.training import Policy
from clients.developer.prompts import STOP
from services.trainer.learner_process import LearnerProcess
from shared.contracts.experience import Experience

OnProgress = Callable[[int], None]
_EVALUATION_SEED = 20261121


@dataclass(frozen=True, slots=True)
class Budget:
    """What every algorithm gets."""

    events: int = 800
    every: int = 200
    """Events between two evaluations."""
    moments: int = 320
    """Of the fixed set."""
    kl_moments: int = 96
    """The first so many of them tell the KL."""
    developers: int = 8
    model_path: str = "models/tabwise-small"


@dataclass(slots=True)
class _World:
    """Who works, and what waits between them and the learner."""

    team: list[Developer]
    waiting: dict[str, list[Waiting]] = field(default_factory=dict)
    ready: list[Experience] = field(default_factory=list)
    events: int = 0
    ticks: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class Run:
    """Call `go` once. `base_point` is the measurement at 0 events, where another run has made it already."""

    def __init__(self, algorithm: Algorithm, seed: int, budget: Budget, base_point: Point | None = None) -> None:
        self._algorithm, self._seed, self._budget = algorithm, seed, budget
        self._base_point = base_point
        self._held_out = HeldOut(budget.moments)
        self._reference = BaseModel(Path(budget.model_path))
        self._world = _World(make_team(budget.developers, seed))

    def go(self, log_file: Path, on_progress: OnProgress = lambda events: None) -> Result:
        """Work until the budget is spent; the learner writes to `log_file`. Raises `LearnerDied` or `RoundRefused`."""
        started = time.monotonic()
        config = self._algorithm.learner_config(self._budget.model_path)
        learner = LearnerProcess(config, module="services.trainer.learner", log_file=log_file)
        try:
            with tempfile.TemporaryDirectory(prefix="bench-learning-") as folder:
                policy = Policy(learner, self._algorithm.trainer(), Path(folder))
                points = self._learn(policy, on_progress)
        finally:
            learner.stop()
        counts = {**self._world.counts, **policy.counts, "rounds": len(policy.steps), "version": policy.now.version}
        return Result(self._algorithm.name, self._seed, points, counts, round(time.monotonic() - started, 1))

    def _learn(self, policy: Policy, on_progress: OnProgress) -> list[Point]:
        world, budget = self._world, self._budget
        points = [self._base_point or self._measure(policy)]
        while world.events < budget.events:
            until = min(points[-1].events + budget.every, budget.events)
            self._tick(policy, until)
            size = self._algorithm.trainer().minibatch_size
            while len(world.ready) >= size:
                policy.train(world.ready[:size])
                del world.ready[:size]
            on_progress(world.events)
            if world.events == until:
                points.append(self._measure(policy))
        return points

    def _tick(self, policy: Policy, until: int) -> None:
        """Every developer pauses once and decides; no more of them than there are events left until then."""
        world, algorithm = self._world, self._algorithm
        team = world.team[: until - world.events]
        seed = self._seed * 1_000_000 + world.ticks
        sampled = policy.sample(
            [developer.pause.prompt for developer in team],
            n=algorithm.group_size,
            temperature=algorithm.temperature,
            seed=seed,
            stop=list(STOP),
        )
        world.ticks += 1
        for developer, group in zip(team, sampled.groups, strict=True):
            self._look_for_settled(developer)
            shown = developer.pause.shown(group.samples[0].text)
            if not shown:
                world.counts["nothing_shown"] += 1
                developer.go_on(accepted=False)
                continue
            accepted = developer.accepts(shown)
            event = Judged(
                number=world.events,
                developer=developer.name,
                pause=developer.pause,
                group=group,
                shown=shown,
                label="accepted" if accepted else "rejected",
                version=policy.now.version,
                temperature=algorithm.temperature,
            )
            world.events += 1
            self._resolve_or_wait(event)
            developer.go_on(accepted)

    def _look_for_settled(self, developer: Developer) -> None:
        """This request may show what was typed where an earlier completion was rejected."""
        still = []
        for waiting in self._world.waiting.pop(developer.name, []):
            settled = waiting.look(developer.pause.prompt)
            if settled is None and not waiting.over:
                still.append(waiting)
            else:
                self._world.counts["settled" if settled else "not_settled"] += 1
                self._resolve(waiting.event, settled)
        self._world.waiting[developer.name] = still

    def _resolve_or_wait(self, event: Judged) -> None:
        self._world.counts[event.label] += 1
        if event.label == "accepted":
            self._resolve(event, None)
        else:
            self._world.waiting.setdefault(event.developer, []).append(Waiting(event))

    def _resolve(self, event: Judged, settled: str | None) -> None:
        resolution = experience(event, settled, self._algorithm.weights)
        if resolution.withheld is None:
            self._world.ready.append(resolution.experience)
        else:
            self._world.counts[f"withheld_{resolution.withheld}"] += 1

    def _measure(self, policy: Policy) -> Point:
        """Greedily and at the serving temperature, with the same random numbers each time."""
        greedy, sampled = (
            policy.sample(self._held_out.prompts, n=1, temperature=temperature, seed=_EVALUATION_SEED, stop=list(STOP))
            for temperature in (0.0, SERVING_TEMPERATURE)
        )
        return Point(
            events=self._world.events,
            greedy=self._held_out.measure(greedy.groups).as_dict(),
            sampled=self._held_out.measure(sampled.groups).as_dict(),
            kl=self._reference.kl(sampled.groups[: self._budget.kl_moments], SERVING_TEMPERATURE),
        )
