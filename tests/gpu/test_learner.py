"""What only a GPU shows of the learner: its dtype and memory on CUDA, pinned offload, ranks over NCCL.

pytest tests/gpu -m gpu
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from services.trainer.learner_api import LearnerConfig, RoundDone
from services.trainer.learner_process import LearnerDied, LearnerProcess
from tests.integration.learner.conftest import first_round, second_round
from tests.integration.learner.support import learner, write_base
from tests.integration.learner.test_combinations import agree_with_probe, same

pytestmark = pytest.mark.timeout(600)
GPUS = torch.cuda.device_count()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


def config(base: Path, **changes: Any) -> LearnerConfig:
    said = {"model_path": str(base), "learning_rate": 1e-2, "lora_rank": 4, "dtype": "bfloat16"}
    return LearnerConfig.model_validate(said | changes)


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize(("zero_stage", "offload"), [(2, "none"), (2, "optimizer"), (3, "none"), (3, "all")])
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_trains_and_resumes(
    base: Path, tmp_path: Path, adapter: str, zero_stage: int, offload: str, gradient_checkpointing: bool
) -> None:
    """The step after a restart is the step without one, but for what CUDA's kernels do not repeat bit for bit."""
    told = config(
        base, adapter=adapter, zero_stage=zero_stage, offload=offload, gradient_checkpointing=gradient_checkpointing
    )
    with learner(told) as driver:
        steps, _ = driver.train(one := first_round(tmp_path))
        more, done = driver.train(two := second_round(tmp_path, one.target))
    with learner(told) as again:
        others, _ = again.train(second_round(tmp_path / "again", one.target))

    assert driver.ready.device == "cuda"
    assert isinstance(done, RoundDone), done
    assert all(step.skipped is None and math.isfinite(step.loss) for step in steps + more)
    assert others[0].loss == pytest.approx(more[0].loss, abs=1e-3)
    assert not same(one.target, two.target)
    agree_with_probe(two.target, "bfloat16")


def test_gpu_and_cpu_agree_in_single_precision(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = config(base, dtype="float32", attention="dense")
    with learner(told) as driver:
        on_gpu, _ = driver.train(first_round(tmp_path / "gpu"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with learner(told) as driver:
        on_cpu, _ = driver.train(first_round(tmp_path / "cpu"))

    assert driver.ready.device == "cpu"
    for one, other in zip(on_gpu, on_cpu, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-2)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("zero_stage", [2, 3])
def test_two_ranks_over_nccl_agree_with_one(base: Path, tmp_path: Path, zero_stage: int) -> None:
    told = config(base, dtype="float32", adapter="lora", zero_stage=zero_stage)
    with learner(told) as driver:
        by_one, _ = driver.train(first_round(tmp_path / "one"))
    with learner(told, ranks=2) as driver:
        by_two, _ = driver.train(first_round(tmp_path / "two"))

    assert driver.ready.ranks == 2
    for one, other in zip(by_one, by_two, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-2)


def test_more_ranks_than_gpus_are_refused_by_name(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LearnerDied):
        LearnerProcess(config(base), module="services.trainer.learner", ranks=GPUS + 1).start()
    assert "each rank needs a GPU" in capfd.readouterr().err
