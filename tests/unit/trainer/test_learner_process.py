"""The child process: real processes, a scripted learner in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.trainer.learner_api import (
    CheckpointRef,
    LearnerConfig,
    SampleRequest,
    TrainGroup,
    TrainRequest,
    TrainSample,
)
from services.trainer.learner_process import LearnerDied, LearnerProcess, RoundAbandoned, RoundRefused
from tests.fakes.learner import BASE


class Starter:
    """Makes learners with faults and stops them all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.made: list[LearnerProcess] = []

    def __call__(self, *, startup_s: float = 30, timeout_s: float = 30, module: str = "tests.fakes.learner",
                 **faults: object) -> LearnerProcess:  # fmt: skip
        self._monkeypatch.setenv("TABWISE_FAKE_LEARNER", json.dumps(faults))
        self.made.append(
            LearnerProcess(LearnerConfig(model_path="m"), module=module, startup_s=startup_s, timeout_s=timeout_s)
        )
        return self.made[-1]


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    starter = Starter(monkeypatch)
    yield starter
    for made in starter.made:
        made.stop()


def request(folder: Path, base: CheckpointRef = BASE) -> TrainRequest:
    version = base.version + 1
    sample = TrainSample(token_ids=[1], behaviour_logprobs=[-0.5], credited_tokens=1, advantage=1.0)
    group = TrainGroup(group_id="g", prompt_token_ids=[1], temperature=1.0, samples=[sample])
    target = CheckpointRef(version=version, lineage=f"r{version}", folder=str(folder / f"v{version:06d}"))
    return TrainRequest(base=base, target=target, minibatches=[[group]])


def gone(pid: int) -> bool:
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_stays_up_between_rounds(learner: Starter, tmp_path: Path) -> None:
    process = learner()
    first = process.train(request(tmp_path))
    pid = process.pid
    second = process.train(request(tmp_path, first.done.target))
    assert [step.groups for step in second.steps] == [1]
    assert process.pid == pid
    assert (tmp_path / "v000002").is_dir()
    process.stop()
    assert pid is not None
    assert gone(pid)


def test_death_in_a_round_is_noticed_and_the_next_round_starts_another(learner: Starter, tmp_path: Path) -> None:
    process = learner(die_in_round=0)
    with pytest.raises(LearnerDied):
        process.train(request(tmp_path))
    assert process.pid is None
    (tmp_path / "v000001.tmp").rename(tmp_path / "aside")
    other = learner()
    assert other.train(request(tmp_path)).done.target.version == 1


def test_a_refused_round_keeps_it_up(learner: Starter, tmp_path: Path) -> None:
    process = learner(fail_rounds=[0])
    with pytest.raises(RoundRefused, match="scripted failure"):
        process.train(request(tmp_path))
    assert process.pid is not None
    assert process.train(request(tmp_path)).done.target.version == 1


def test_dying_at_the_start_says_so(learner: Starter) -> None:
    with pytest.raises(LearnerDied, match="exited with status 3"):
        learner(die_at_start=True).start()


def test_a_model_that_does_not_load_says_why(learner: Starter) -> None:
    with pytest.raises(LearnerDied, match="no such model"):
        learner(refuse_to_load="no such model").start()


def test_never_connecting_is_noticed(learner: Starter) -> None:
    process = learner(startup_s=0.5, module="http.server")  # a module that starts and never connects
    with pytest.raises(LearnerDied, match="too long"):
        process.start()


def test_silence_is_noticed(learner: Starter, tmp_path: Path) -> None:
    process = learner(timeout_s=0.5, step_s=20)
    with pytest.raises(LearnerDied, match="too long"):
        process.train(request(tmp_path))


def test_a_round_can_be_abandoned(learner: Starter, tmp_path: Path) -> None:
    process = learner(step_s=20)
    process.start()
    with pytest.raises(RoundAbandoned):
        process.train(request(tmp_path), lambda: True)
    assert process.pid is None


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_dies_with_us_even_in_the_middle_of_a_step(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from services.trainer.learner_api import LearnerConfig\n"
        "from services.trainer.learner_process import LearnerProcess\n"
        "from tests.unit.trainer.test_learner_process import request\n"
        "p = LearnerProcess(LearnerConfig(model_path='m'), module='tests.fakes.learner')\n"
        "p.start()\n"
        "print(p.pid, file=sys.stderr, flush=True)\n"
        f"p.train(request(Path({str(tmp_path)!r})))\n"
    )
    slow = os.environ | {"TABWISE_FAKE_LEARNER": json.dumps({"step_s": 60})}
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env=slow) as parent:
        assert parent.stderr is not None
        child = int(parent.stderr.readline())
        time.sleep(0.3)
        parent.kill()
    assert gone(child)


def test_samples_between_rounds(learner: Starter, tmp_path: Path) -> None:
    process = learner()
    one = process.sample(SampleRequest(base=BASE, prompts=[[1, 2], [3]]))
    trained = process.train(request(tmp_path))
    other = process.sample(SampleRequest(base=trained.done.target, prompts=["text"]))

    assert [group.prompt_token_ids for group in one.groups] == [[1, 2], [3]]
    assert len(other.groups) == 1


def test_refused_samples_leave_it_running(learner: Starter, tmp_path: Path) -> None:
    process = learner(refuse_samples="prompt 0 is empty")
    with pytest.raises(RoundRefused, match="the learner could not sample: prompt 0 is empty"):
        process.sample(SampleRequest(base=BASE, prompts=[[]]))
    pid = process.pid
    process.train(request(tmp_path))

    assert process.pid == pid
