"""A scripted learner that samples too, for the warm start: `tests.fakes.learner` and made-up completions.

As a process (`python -m tests.fakes.warm_learner`) it appends every request to the file in `TABWISE_WARM_REQUESTS`: one
JSON object a line, `{"kind": "train", "version": 3, "base": …, "groups": [sample ids]}`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from multiprocessing.connection import Client
from pathlib import Path

from services.trainer.learner_api import (
    LEARNER_ADDRESS,
    LEARNER_AUTHKEY,
    REQUEST,
    LearnerReady,
    Sampled,
    SampledCompletion,
    SampledGroup,
    SampleRequest,
    TrainRequest,
)
from services.trainer.learner_process import TrainedRound
from tests.fakes.learner import Faults, Script, ScriptedLearner

TEXTS = ("total", "item.price", "x = 1", "return result", "")


def sampled(request: SampleRequest) -> Sampled:
    """The same request gives the same completions."""
    groups = []
    for index, prompt in enumerate(request.prompts):
        rng = random.Random(f"{request.seed} {request.base.version} {index}")
        assert not isinstance(prompt, str)
        groups.append(SampledGroup(prompt_token_ids=prompt, samples=[_one(rng) for _ in range(request.n)]))
    return Sampled(groups=groups, seconds=0.0)


def _one(rng: random.Random) -> SampledCompletion:
    text = rng.choice(TEXTS)
    tokens = [7 + len(text), 0]
    return SampledCompletion(
        token_ids=tokens, logprobs=[-1.0, -0.5], text=text, text_offsets=[0, len(text)], finish="stop"
    )


def make_room(request: TrainRequest) -> None:
    """As the real learner does: what an earlier attempt left under this name goes."""
    for folder in (f"{request.target.folder}.tmp", str(request.target.folder)):
        shutil.rmtree(folder, ignore_errors=True)


class ScriptedWarmLearner(ScriptedLearner):
    """In the test's own process."""

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__(faults)
        self.drawn: list[SampleRequest] = []

    def sample(self, request: SampleRequest, abandon: Callable[[], bool] = lambda: False) -> Sampled:
        self.drawn.append(request)
        return sampled(request)

    def train(self, request: TrainRequest, abandon: Callable[[], bool] = lambda: False) -> TrainedRound:
        make_room(request)
        return super().train(request, abandon)


def main() -> int:
    """The process."""
    script = Script(Faults(**json.loads(os.environ.get("TABWISE_FAKE_LEARNER", "{}"))))
    with Client(os.environ[LEARNER_ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ[LEARNER_AUTHKEY])) as line:
        line.send_bytes(LearnerReady(ranks=1, parameters=1, device="cpu").model_dump_json().encode())
        while True:
            try:
                request = REQUEST.validate_json(line.recv_bytes())
            except EOFError:
                return 0
            _write_down(request)
            if isinstance(request, SampleRequest):
                line.send_bytes(sampled(request).model_dump_json().encode())
                continue
            make_room(request)
            if script.answer(request, lambda reply: line.send_bytes(reply.model_dump_json().encode())):
                return 5


def _write_down(request: SampleRequest | TrainRequest) -> None:
    row: dict[str, object] = {"kind": request.kind, "base": request.base.version}
    if isinstance(request, TrainRequest):
        groups = [group.group_id for minibatch in request.minibatches for group in minibatch]
        row |= {"version": request.target.version, "groups": groups}
    with Path(os.environ["TABWISE_WARM_REQUESTS"]).open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
