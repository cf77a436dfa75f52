"""One of two ranks dies: nothing is lost, nothing counts twice, and nobody waits for a time limit."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.trainer.learner.checkpoint import Lineage
from services.trainer.learner_process import LearnerDied, LearnerProcess
from services.trainer.rounds import Rounds
from services.trainer.runtime import make_learner
from tests.contract import tiny_model
from tests.integration.trainer import ranks
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience
from tests.unit.trainer.test_learner_process import request

pytestmark = [
    pytest.mark.timeout(400),  # three starts of two ranks
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
PROMPT_S = 15.0
"""Generous: seconds on idle cores are tenths. The learner's time limit is 600."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Large enough for a step of some tenths of a second."""
    return tiny_model.build(tmp_path / "model", layers=12, width=256)


@pytest.fixture
def learner(bench: Bench, model: Path) -> Iterator[LearnerProcess]:
    changes: dict[str, Any] = {"model_path": str(model), "tensorboard_dir": None, "learner_ranks": 2, "adapter": "lora"}
    changes["max_logprob_gap"] = math.inf  # the factories' logprobs are made up
    process = make_learner(bench.settings.model_copy(update=changes), bench.metrics)
    yield process
    process.stop()


def trainer(bench: Bench, learner: LearnerProcess) -> Rounds:
    """As after a restart."""
    made = bench.trainer(max_wait_s=0)
    made._learner = learner
    return made


class Killer(threading.Thread):
    """Kills a process as soon as something is so (the trainer's thread waits for the learner meanwhile)."""

    def __init__(self, pid: int, now: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._pid, self._now = pid, now
        self.killed_at = math.inf
        self.start()

    def run(self) -> None:
        while not self._now():
            time.sleep(0.0005)
        os.kill(self._pid, signal.SIGKILL)
        self.killed_at = time.monotonic()


async def dies(bench: Bench, learner: LearnerProcess, killer: Killer, model: Path) -> None:
    with pytest.raises(LearnerDied):
        await trainer(bench, learner).tick()
    assert time.monotonic() - killer.killed_at < PROMPT_S
    assert ranks.all_gone(model)
    bench.now_s += 1000  # past the pause after a failure


def stuck_in_a_step(pid: int) -> Callable[[], bool]:
    """True a second after this rank, which was idle, has begun to compute and was stopped."""
    idle_s, stopped_at = ranks.cpu_s(pid), math.inf

    def now() -> bool:
        nonlocal stopped_at
        if stopped_at == math.inf and ranks.cpu_s(pid) - idle_s > 0.025:
            os.kill(pid, signal.SIGSTOP)
            stopped_at = time.monotonic()
        return time.monotonic() - stopped_at > 1.0

    return now


async def test_nothing_is_lost_when_ranks_die(bench: Bench, learner: LearnerProcess, model: Path) -> None:
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    assert await trainer(bench, learner).tick() == "committed"

    # in the middle of a step: rank 1 stands still, so that rank 0 waits for it in a collective
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    victim = ranks.rank(1, model)
    await dies(bench, learner, Killer(victim, stuck_in_a_step(victim)), model)
    assert bench.folders() == ["v000001"]

    # rank 0, with a checkpoint that is written and not yet renamed
    learner.start()
    draft = bench.root / "v000002.tmp"
    await dies(bench, learner, Killer(ranks.rank(0, model), draft.is_dir), model)
    assert bench.folders() == ["v000001", "v000002.tmp"]

    again = trainer(bench, learner)
    while len(bench.dispositions()) < 8:
        assert await again.tick() == "committed"
    assert set(bench.dispositions().values()) == {"trained"}
    assert sum(row.trained for row in bench.rounds()) == 8
    one_lineage(bench)


def one_lineage(bench: Bench) -> None:
    """Each version builds on the one before, on disk as in the database, and there is nothing else."""
    rows = bench.rounds()
    assert [row.version for row in rows] == list(range(1, len(rows) + 1))
    assert bench.folders() == [row.checkpoint for row in rows]
    parent = "base"
    for row in rows:
        found = Lineage.model_validate_json((bench.root / (row.checkpoint or "") / "lineage.json").read_bytes())
        assert (found.lineage, found.parent_lineage, found.ranks) == (row.round_id, parent, 2)
        parent = found.lineage


def test_two_nodes_by_a_hostfile(bench: Bench, model: Path, tmp_path: Path) -> None:
    """Two torchruns on this machine, the second started by the launcher; and what becomes of it when a rank dies."""
    (tmp_path / "hosts").write_text("# the trainer's own first\n127.0.0.1 slots=1\nlocalhost slots=1\n")
    changes: dict[str, Any] = {"model_path": str(model), "tensorboard_dir": None, "zero_stage": 3}
    changes |= {"learner_hostfile": str(tmp_path / "hosts"), "learner_launcher": "env TEST_NODE={host} sh -c"}
    process = make_learner(bench.settings.model_copy(update=changes), bench.metrics)
    try:
        process.start()
        here, there = (ranks.environment(ranks.rank(number, model)) for number in (0, 1))
        assert (there["WORLD_SIZE"], there["GROUP_RANK"], there["TEST_NODE"]) == ("2", "1", "localhost")
        assert "TABWISE_LEARNER_AUTHKEY" in here
        assert "TABWISE_LEARNER_AUTHKEY" not in there
        lines = [ranks.command_line(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        secrets = (here["TABWISE_LEARNER_AUTHKEY"], str(model))
        assert not [line for line in lines if any(secret in line for secret in secrets)]

        folder = tmp_path / "checkpoints"
        assert process.train(request(folder)).done.target.version == 1
        killer = Killer(ranks.rank(1, model), lambda: True)
        killer.join()
        with pytest.raises(LearnerDied):
            process.train(request(folder))
        assert time.monotonic() - killer.killed_at < PROMPT_S
        assert ranks.all_gone(model)
    finally:
        process.stop()
