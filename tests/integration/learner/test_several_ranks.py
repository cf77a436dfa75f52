"""Two ranks compute what one does, but for the order of sums: loss, gradient norm, weights; all or an adapter."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from services.trainer.learner.ranks import Ranks
from services.trainer.learner_api import LearnerConfig, StepDone
from tests.integration.learner.several_ranks import two_rounds

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:`torch.distributed:FutureWarning"),  # DeepSpeed's calls
]

CASES = list(itertools.product(("none", "lora"), (0, 2, 3)))


def case(base: Path, adapter: str, zero_stage: int) -> LearnerConfig:
    changes = {"adapter": adapter, "zero_stage": zero_stage, "lora_rank": 4, "learning_rate": 1e-2}
    return LearnerConfig.model_validate({"model_path": str(base)} | changes)


@pytest.fixture(scope="module")
def by_two(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    configs = [case(base_model, *one).model_dump() for one in CASES]
    (folder / "configs.json").write_text(json.dumps(configs))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    module = ["-m", "tests.integration.learner.several_ranks", str(folder)]
    subprocess.run([sys.executable, *torchrun, *module], check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def by_one(
    base_model: Path, ranks: Ranks, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[StepDone]]]:
    """Stage 2 for all: `test_combinations` compares the stages."""
    folder = tmp_path_factory.mktemp("one")
    adapters = ("none", "lora")
    return {name: (folder / name, two_rounds(case(base_model, name, 2), ranks, folder / name)) for name in adapters}


@pytest.mark.parametrize("place", range(len(CASES)), ids=["-".join(map(str, one)) for one in CASES])
def test_two_ranks_agree_with_one(by_two: Path, by_one: dict[str, tuple[Path, list[StepDone]]], place: int) -> None:
    own = by_two / str(place)
    steps = [StepDone.model_validate(step) for step in json.loads((own / "steps.json").read_text())]
    folder, expected = by_one[CASES[place][0]]

    assert [step.tokens for step in steps] == [step.tokens for step in expected]
    for step, other in zip(steps, expected, strict=True):
        assert step.loss == pytest.approx(other.loss, abs=2e-5)
        assert step.kl == pytest.approx(other.kl, abs=2e-5)
        assert step.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    assert distance(own / "v000001", folder / "v000001") < 1e-4
    assert distance(own / "v000002", folder / "v000002") < 2e-4
    assert len(list((own / "v000002" / "deepspeed" / "state").glob("*optim_states.pt"))) == (
        2 if CASES[place][1] else 0
    )


def distance(one: Path, other: Path) -> float:
    """Largest difference of any weight that is served; a step moves one by up to 1e-2."""
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)
