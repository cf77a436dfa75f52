"""A scripted learner: speaks `learner_api`, trains nothing, writes a folder that looks like a checkpoint.

As a process (`python -m tests.fakes.learner`, for `LearnerProcess` and the Celery worker) it takes its faults from the
JSON in `TABWISE_FAKE_LEARNER` (fields of `Faults`). In a test's own process, `ScriptedLearner` is the same without
process and socket, its faults set by attribute. `requests` holds what it was asked.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from pathlib import Path

from services.trainer.learner_api import (
    LEARNER_ADDRESS,
    LEARNER_AUTHKEY,
    LEARNER_CONFIG,
    LOGPROB_GAP,
    NON_FINITE,
    REQUEST,
    CheckpointRef,
    LearnerConfig,
    LearnerReady,
    RoundDone,
    RoundFailed,
    Sampled,
    SampledGroup,
    SampleRequest,
    Skipped,
    StepDone,
    TrainGroup,
    TrainRequest,
)
from services.trainer.learner_process import LearnerDied, RoundAbandoned, RoundRefused, TrainedRound

BASE = CheckpointRef(version=0, lineage="base", folder=None)


@dataclass
class Faults:
    """What goes wrong, counted in requests from 0; None: never."""

    die_at_start: bool = False
    refuse_to_load: str | None = None
    """Answer `RoundFailed` with this instead of `LearnerReady`."""
    die_in_round: int | None = None
    """Exit after the temporary folder was written, before the rename."""
    die_after_rename: int | None = None
    """Exit when the target folder is whole, before saying so."""
    refuse_samples: str | None = None
    """Answer `RoundFailed` with this to every `SampleRequest`."""
    fail_rounds: list[int] = field(default_factory=list)
    """Answer `RoundFailed` to these requests."""
    poison: list[str] = field(default_factory=list)
    """Answer `RoundFailed` to every request with one of these groups."""
    skip_steps: list[int] = field(default_factory=list)
    """Say that these mini-batches of a round were not finite."""
    not_finite: list[str] = field(default_factory=list)
    """Say so of every mini-batch with one of these groups."""
    far_apart: list[int] = field(default_factory=list)
    """Say that these mini-batches of a round were refused for the gap between engine and learner."""
    step_s: float = 0.0
    """How long a step takes."""
    began: str | None = None
    """File that appears when a round's first step begins."""


class Script:
    """What both forms share: one request in, replies out."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.requests: list[TrainRequest] = []
        self.memory = BASE
        self.reloads = 0
        """How often a request built on something else than what was in memory."""

    def answer(self, request: TrainRequest, say: Callable[[StepDone | RoundDone | RoundFailed], None]) -> str | None:
        """Returns where to die, else None."""
        number = len(self.requests)
        self.requests.append(request)
        groups = {group.group_id for minibatch in request.minibatches for group in minibatch}
        if number in self.faults.fail_rounds or groups & set(self.faults.poison):
            say(RoundFailed(error="scripted failure"))
            return None
        if request.base != self.memory:
            self.reloads += 1
        self.memory = request.target
        if self.faults.began is not None:
            Path(self.faults.began).touch()
        for index, minibatch in enumerate(request.minibatches):
            time.sleep(self.faults.step_s)
            say(self._step(index, minibatch))
        temporary = write_checkpoint(request.target)
        if self.faults.die_in_round == number:
            return "in_round"
        assert request.target.folder is not None
        temporary.rename(request.target.folder)
        if self.faults.die_after_rename == number:
            return "after_rename"
        say(RoundDone(target=request.target, seconds=0.01, peak_rss_mb=100.0))
        return None

    def sample(self, request: SampleRequest) -> Sampled | RoundFailed:
        """Groups without samples; or the fault."""
        if self.faults.refuse_samples:
            return RoundFailed(error=self.faults.refuse_samples)
        prompts = [[0] if isinstance(prompt, str) else prompt for prompt in request.prompts]
        return Sampled(groups=[SampledGroup(prompt_token_ids=p, samples=[]) for p in prompts], seconds=0.01)

    def _step(self, index: int, minibatch: list[TrainGroup]) -> StepDone:
        skipped = self._skipped(index, minibatch)
        return StepDone(
            minibatch=index,
            groups=len(minibatch),
            tokens=sum(sample.credited_tokens for group in minibatch for sample in group.samples),
            loss=0.1,
            kl=0.001,
            grad_norm=0.5,
            clip_share=0.0,
            importance_mean=1.0,
            importance_max=1.1,
            effective_sample_share=0.99,
            logprob_gap_mean=1.25 if skipped == LOGPROB_GAP else 0.001,
            logprob_gap_max=3.5 if skipped == LOGPROB_GAP else 0.01,
            seconds=0.01,
            skipped=skipped,
        )

    def _skipped(self, index: int, minibatch: list[TrainGroup]) -> Skipped | None:
        ids = {group.group_id for group in minibatch}
        if index in self.faults.skip_steps or ids & set(self.faults.not_finite):
            return NON_FINITE
        return LOGPROB_GAP if index in self.faults.far_apart else None


class ScriptedLearner(Script):
    """`services.trainer.learner_process.Learner` without a process; it loses its memory when it "dies"."""

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__(faults or Faults())

    def train(self, request: TrainRequest, abandon: Callable[[], bool] = lambda: False) -> TrainedRound:
        replies: list[StepDone | RoundDone | RoundFailed] = []
        died = self.answer(request, replies.append)
        if died:
            self.memory = BASE
            raise LearnerDied(f"scripted: {died}")
        if abandon():
            raise RoundAbandoned("scripted")
        last = replies.pop()
        if isinstance(last, RoundFailed):
            raise RoundRefused(last.error)
        assert isinstance(last, RoundDone)
        return TrainedRound([step for step in replies if isinstance(step, StepDone)], last)


def write_checkpoint(target: CheckpointRef) -> Path:
    """The target's temporary folder with a config, a probe and the lineage."""
    assert target.folder is not None
    temporary = Path(f"{target.folder}.tmp")
    temporary.mkdir(parents=True)
    (temporary / "config.json").write_text("{}")
    probe = {"version": target.version, "token_ids": [1, 2], "logprobs": [-1.0]}
    (temporary / "probe.json").write_text(json.dumps(probe))
    (temporary / "lineage").write_text(target.lineage)
    return temporary


def main() -> int:
    """The process."""
    LearnerConfig.model_validate_json(os.environ[LEARNER_CONFIG])
    faults = Faults(**json.loads(os.environ.get("TABWISE_FAKE_LEARNER", "{}")))
    if faults.die_at_start:
        return 3
    with Client(os.environ[LEARNER_ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ[LEARNER_AUTHKEY])) as line:
        return _serve(line, Script(faults))


def _serve(line: Connection, script: Script) -> int:
    if script.faults.refuse_to_load:
        line.send_bytes(RoundFailed(error=script.faults.refuse_to_load).model_dump_json().encode())
        return 4
    line.send_bytes(LearnerReady(ranks=1, parameters=1, device="cpu").model_dump_json().encode())
    while True:
        try:
            request = REQUEST.validate_json(line.recv_bytes())
        except EOFError:
            return 0
        if isinstance(request, SampleRequest):
            line.send_bytes(script.sample(request).model_dump_json().encode())
            continue
        if script.answer(request, lambda reply: line.send_bytes(reply.model_dump_json().encode())):
            return 5


if __name__ == "__main__":
    sys.exit(main())
