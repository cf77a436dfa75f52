"""`python -m benchmarks.adapters.worker FOLDER < TASK`: the learner itself, in this process; prints a `Measured`."""

from __future__ import annotations

import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from pydantic import BaseModel

from services.trainer.learner_api import (
    CheckpointRef,
    LearnerConfig,
    StepDone,
    TrainGroup,
    TrainRequest,
    TrainSample,
)


class Task(BaseModel):
    """What to train, and for how long."""

    config: dict[str, Any]
    """Of `LearnerConfig`."""
    vocabulary: int
    groups: int
    prompt: int
    rounds: int


class Measured(BaseModel):
    """Of one process; MB are 2²⁰ bytes."""

    parameters: int
    """With the adapter's."""
    trained: int
    cpu_s: float
    """CPU seconds of a round of one step, its checkpoint included; one thread."""
    peak_mb: float
    state_mb: float
    """On disk, to resume from."""
    served_mb: float
    """On disk, for the engine."""


def main(folder: Path) -> None:
    """One round to get going, then the timed ones."""
    task = Task.model_validate_json(sys.stdin.read())
    print(run(task, folder).model_dump_json())


def run(task: Task, folder: Path) -> Measured:
    """Imports come first, so that they are not counted."""
    import torch

    from services.trainer.learner.engine import import_deepspeed
    from services.trainer.learner.ranks import join_ranks
    from services.trainer.learner.rounds import Learner

    torch.set_num_threads(1)
    ranks = join_ranks()
    import_deepspeed()
    imports_mb = status_mb("VmRSS")
    learner = Learner(LearnerConfig.model_validate(task.config), ranks)
    steps: list[StepDone] = []
    clock = [time.process_time()]
    base = CheckpointRef(version=0, lineage="base", folder=None)
    for version in range(1, task.rounds + 2):
        name = f"v{version:06d}"
        target = CheckpointRef(version=version, lineage=name, folder=str(folder / name))
        learner.train(TrainRequest(base=base, target=target, minibatches=[groups(task)]), steps.append)
        clock.append(time.process_time())
        base = target
    assert all(step.skipped is None for step in steps), steps
    last = Path(base.folder or "")
    parameters = list(learner._engine.policy.parameters())
    return Measured(
        parameters=sum(p.numel() for p in parameters),
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        cpu_s=median(after - before for before, after in pairwise(clock[1:])),
        peak_mb=status_mb("VmHWM") - imports_mb,
        state_mb=sum(file.stat().st_size for file in (last / "deepspeed").rglob("*.pt")) / 2**20,
        served_mb=(last / "model.safetensors").stat().st_size / 2**20,
    )


def groups(task: Task) -> list[TrainGroup]:
    """Random tokens, eight samples of ten tokens for each prompt; logprobs as of a policy that knows nothing."""
    random = Random(0)
    known = -math.log(task.vocabulary)

    def tokens(count: int) -> list[int]:
        return [random.randrange(task.vocabulary) for _ in range(count)]

    def sample() -> TrainSample:
        advantage = random.uniform(-1, 1)
        return TrainSample(
            token_ids=tokens(10), behaviour_logprobs=[known] * 10, credited_tokens=10, advantage=advantage
        )

    return [
        TrainGroup(
            group_id=str(one),
            prompt_token_ids=tokens(task.prompt),
            temperature=1.0,
            samples=[sample() for _ in range(8)],
        )
        for one in range(task.groups)
    ]


def status_mb(name: str) -> float:
    """A line of /proc/self/status. Linux only."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
