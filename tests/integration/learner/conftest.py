"""One tiny base model, and one learner process that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from services.trainer.learner.ranks import Ranks, join_ranks
from services.trainer.learner_api import CheckpointRef, LearnerConfig, RoundDone, StepDone, TrainRequest
from tests.integration.learner.support import BASE, Driver, groups, learner, write_base


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def config(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> LearnerConfig:
    board = tmp_path_factory.mktemp("tensorboard")
    return LearnerConfig(model_path=str(base_model), learning_rate=1e-2, threads=1, tensorboard_dir=str(board))


def ref(folder: Path, version: int, lineage: str) -> CheckpointRef:
    return CheckpointRef(version=version, lineage=lineage, folder=str(folder / f"v{version:06d}"))


def first_round(folder: Path) -> TrainRequest:
    """Base → version 1, two mini-batches."""
    target = ref(folder, 1, "round-1")
    return TrainRequest(base=BASE, target=target, minibatches=[groups(1), groups(2)], scalars={"reward": 0.5})


def second_round(folder: Path, base: CheckpointRef) -> TrainRequest:
    """Version 1 → version 2, one mini-batch."""
    return TrainRequest(base=base, target=ref(folder, 2, "round-2"), minibatches=[groups(3)])


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """This process as the only rank, for a `Learner` in the test's own process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield join_ranks()
    torch.distributed.destroy_process_group()
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Trained:
    """A learner that trained two rounds in a row and is still up, and what it said."""

    driver: Driver
    folder: Path
    steps: list[StepDone]
    first: CheckpointRef
    second: CheckpointRef


@pytest.fixture(scope="session")
def trained(config: LearnerConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("checkpoints")
    with learner(config) as driver:
        steps_1, done_1 = driver.train(one := first_round(folder))
        steps_2, done_2 = driver.train(two := second_round(folder, one.target))
        assert isinstance(done_1, RoundDone), done_1
        assert isinstance(done_2, RoundDone), done_2
        yield Trained(driver, folder, steps_1 + steps_2, one.target, two.target)
    assert driver.process.returncode == 0
