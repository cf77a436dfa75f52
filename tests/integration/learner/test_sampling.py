"""Sampling from a real learner process: between rounds, from other versions, on two ranks, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.trainer.learner_api import (
    CheckpointRef,
    LearnerConfig,
    RoundDone,
    RoundFailed,
    Sampled,
    SampleRequest,
    TrainGroup,
    TrainRequest,
    TrainSample,
)
from tests.integration.learner.conftest import Trained, first_round, ref, second_round
from tests.integration.learner.support import BASE, learner

pytestmark = pytest.mark.timeout(300)
TEMPERATURE = 0.7


def request(base: CheckpointRef, **given: object) -> SampleRequest:
    prompts = [[1, 2, 3], list(range(60)), [9] * 20]
    usual = {"base": base, "prompts": prompts, "n": 3, "max_tokens": 9, "temperature": TEMPERATURE, "seed": 5}
    return SampleRequest.model_validate(usual | given)


def ids(sampled: Sampled | RoundFailed) -> list[list[int]]:
    assert isinstance(sampled, Sampled), sampled
    return [completion.token_ids for group in sampled.groups for completion in group.samples]


def test_between_rounds_and_from_any_version(trained: Trained, tmp_path: Path) -> None:
    """Each version says its own; training on what was sampled sees no gap, for it is one and the same policy."""
    newest = trained.driver.sample(request(trained.second))
    older = trained.driver.sample(request(trained.first))
    assert ids(newest) != ids(older)
    assert ids(trained.driver.sample(request(trained.second))) == ids(newest)

    assert isinstance(newest, Sampled)
    groups = [
        TrainGroup(
            group_id=str(at),
            prompt_token_ids=group.prompt_token_ids,
            temperature=TEMPERATURE,
            samples=[
                TrainSample(token_ids=s.token_ids, behaviour_logprobs=s.logprobs, credited_tokens=1, advantage=0.1)
                for s in group.samples
            ],
        )
        for at, group in enumerate(newest.groups)
    ]
    target = ref(tmp_path, 3, "own")
    steps, done = trained.driver.train(TrainRequest(base=trained.second, target=target, minibatches=[groups]))
    assert isinstance(done, RoundDone), done
    assert steps[0].logprob_gap_max < 1e-4


def test_refused_with_a_sentence(trained: Trained) -> None:
    too_long = trained.driver.sample(request(trained.second, prompts=[[1] * 510]))
    unknown = trained.driver.sample(request(ref(trained.folder, 9, "nowhere")))

    assert isinstance(too_long, RoundFailed)
    assert "prompt 0 has 510 tokens: with max_tokens=9" in too_long.error
    assert isinstance(unknown, RoundFailed)
    assert "is not a whole checkpoint" in unknown.error


def test_two_ranks_sample_as_one(config: LearnerConfig, trained: Trained, tmp_path: Path) -> None:
    """Prompts are shared out, one rank has fewer; then the ranks still train together."""
    with learner(config.model_copy(update={"tensorboard_dir": None}), ranks=2) as driver:
        before = driver.sample(request(BASE))
        _, done = driver.train(one := first_round(tmp_path))
        lone = driver.sample(request(one.target, prompts=[[4, 5]]))
        _, again = driver.train(second_round(tmp_path, one.target))
    expected = trained.driver.sample(request(BASE))

    assert isinstance(done, RoundDone), done
    assert isinstance(again, RoundDone), again
    assert ids(before) == ids(expected)
    assert len(ids(lone)) == 3


def test_split_weights_sample_too(config: LearnerConfig, trained: Trained, tmp_path: Path) -> None:
    """ZeRO 3 on two ranks, before a round, after it, and the round after that."""
    with learner(config.model_copy(update={"zero_stage": 3, "tensorboard_dir": None}), ranks=2) as driver:
        before = driver.sample(request(BASE))
        steps, _ = driver.train(one := first_round(tmp_path))
        after = driver.sample(request(one.target))
        more, done = driver.train(second_round(tmp_path, one.target))
    expected = [trained.driver.sample(request(base)) for base in (BASE, trained.first)]

    assert isinstance(done, RoundDone), done
    assert ids(before) == ids(expected[0])
    assert ids(after) == ids(expected[1])
    assert [step.loss for step in steps + more] == pytest.approx([step.loss for step in trained.steps], abs=1e-4)
