"""Rounds with the real learner process: DeepSpeed trains what the trainer planned."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.trainer.learner_process import LearnerProcess
from services.trainer.rounds import Rounds
from services.trainer.runtime import make_learner
from tests.contract import tiny_model
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience


@pytest.fixture
def learner(bench: Bench, tmp_path: Path) -> Iterator[LearnerProcess]:
    model = tiny_model.build(tmp_path / "model")
    changes: dict[str, Any] = {"model_path": str(model), "tensorboard_dir": str(tmp_path / "runs")}
    changes["max_logprob_gap"] = math.inf  # the factories' logprobs are made up: 3.6 nats from this model's
    settings = bench.settings.model_copy(update=changes)
    process = make_learner(settings, bench.metrics)
    yield process
    process.stop()


def trainer(bench: Bench, learner: LearnerProcess) -> Rounds:
    made = bench.trainer(max_wait_s=0)
    made._learner = learner
    return made


async def test_two_rounds_and_a_restart_between(bench: Bench, learner: LearnerProcess, tmp_path: Path) -> None:
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    assert await trainer(bench, learner).tick() == "committed"
    await asyncio.to_thread(learner.stop)
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    assert await trainer(bench, learner).tick() == "committed"
    assert [row.version for row in bench.rounds()] == [1, 2]
    assert bench.folders() == ["v000001", "v000002"]
    first, second = [(bench.root / name / "model.safetensors").read_bytes() for name in bench.folders()]
    assert first != second
    for row in bench.rounds():
        [step] = row.stats["steps"]
        assert step["skipped"] is None
        assert step["grad_norm"] > 0
        assert step["groups"] >= 4
    assert list((tmp_path / "runs").rglob("events.*"))
    assert bench.metrics.learner_starts._value.get() == 2
