"""Rounds with a scripted learner: what is trained, what is noted, and that a crash anywhere changes neither."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.learner_api import SampledCompletion, SampledGroup, SampleRequest
from services.trainer.warmstart import keeping, result, state
from services.trainer.warmstart.config import Training, WarmStartConfig
from services.trainer.warmstart.logs import RunLog
from services.trainer.warmstart.planning import Scored, picked, plan
from services.trainer.warmstart.result import write_final
from services.trainer.warmstart.rewards.mix import RewardMix, Scores
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.run import GaveUp, Run, begin
from services.trainer.warmstart.samples import Samples, build_samples
from services.trainer.warmstart.state import RunState, data_of, load_state, only_run
from services.trainer.warmstart.tokens import PromptTokenizer
from shared.kit.errors import SettingsError
from tests.fakes.learner import Faults
from tests.fakes.warm_learner import ScriptedWarmLearner
from tests.unit.trainer.warmstart.conftest import MODEL, Configure


class Crash(BaseException):
    """The process dies here."""


class Nobody:
    """Watches nothing."""

    def round_done(self, number: int, figures: dict[str, float]) -> None: ...

    def evaluated(self, done: state.Evaluated) -> None: ...


@pytest.fixture
def config(configure: Configure) -> WarmStartConfig:
    return configure(
        training={"rounds": 5, "prompts_per_round": 4, "group_size": 4, "advantage": "rloo"},
        evaluation={"every": 2, "samples": 3},
    )


@pytest.fixture
def samples(config: WarmStartConfig) -> Samples:
    return build_samples(config)


def going(config: WarmStartConfig, samples: Samples, learner: ScriptedWarmLearner) -> Run:
    """A new process's run, from what is on disk."""
    config.output.mkdir(exist_ok=True)
    mix = RewardMix.of(config.rewards)

    def score(candidates: Sequence[Candidate]) -> Scores:
        return asyncio.run(mix.score(candidates))

    return Run(
        config,
        samples,
        load_state(config) or begin(config, data_of(config)),
        learner=learner,
        tokenizer=PromptTokenizer.of(MODEL),
        score=score,
        log=RunLog(config.output),
        watcher=Nobody(),
    )


def lines(config: WarmStartConfig, event: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (config.output / "log.jsonl").read_text().splitlines()]
    return [row for row in rows if row["event"] == event]


def test_a_run_from_start_to_end(config: WarmStartConfig, samples: Samples) -> None:
    learner = ScriptedWarmLearner()
    made = going(config, samples, learner)
    made.go()
    assert [request.target.version for request in learner.requests] == [1, 2, 3, 4, 5]
    assert [request.base.version for request in learner.requests] == [0, 1, 2, 3, 4]
    assert [done.round for done in made.state.evaluations] == [0, 2, 4, 5]
    assert sorted(path.name for path in config.output.glob("v*")) == ["v000004", "v000005"]
    assert [row["round"] for row in lines(config, "round")] == [1, 2, 3, 4, 5]
    assert [row["round"] for row in lines(config, "evaluation")] == [0, 2, 4, 5]
    assert load_state(config) == made.state
    assert learner.reloads == 0
    assert list((config.output / "tensorboard").rglob("events.*"))
    code = samples.train[0].reference
    assert code not in (config.output / "log.jsonl").read_text()


def test_one_line_holes_end_at_the_line_and_others_do_not(configure: Configure) -> None:
    config = configure(holes={"block": 5, "function_body": 5}, training={"rounds": 2, "prompts_per_round": 8})
    samples = build_samples(config)
    learner = ScriptedWarmLearner()
    going(config, samples, learner).go()
    asked = {(tuple(request.stop), request.n) for request in learner.drawn}
    assert asked >= {(("\n",), 8), ((), 8)}
    assert {request.temperature for request in learner.drawn if request.n == 1} == {0.0}


def test_advantages_are_the_estimators_and_the_end_token_is_credited(config: WarmStartConfig, samples: Samples) -> None:
    learner = ScriptedWarmLearner()
    going(config, samples, learner).go()
    for request in learner.requests:
        for group in [group for minibatch in request.minibatches for group in minibatch]:
            assert group.temperature == config.training.temperature
            assert all(sample.credited_tokens == len(sample.token_ids) == 2 for sample in group.samples)
            assert any(sample.advantage > 0 for sample in group.samples) or len(group.samples) == 4


def crash_at(monkeypatch: pytest.MonkeyPatch, learner: ScriptedWarmLearner, point: int) -> None:
    """Die at the n-th of all steps that leave something behind."""
    count = iter(range(1, 10_000))

    def dying(work: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if next(count) == point:
                raise Crash
            result = work(*given, **named)
            if next(count) == point:
                raise Crash
            return result

        return step

    monkeypatch.setattr(state, "write_whole", dying(state.write_whole))
    monkeypatch.setattr(result, "remove_old", dying(result.remove_old))
    monkeypatch.setattr(learner, "train", dying(learner.train))
    monkeypatch.setattr(learner, "sample", dying(learner.sample))


def test_a_crash_anywhere_changes_neither_samples_nor_order(
    config: WarmStartConfig, samples: Samples, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = config.model_copy(update={"training": config.training.model_copy(update={"rounds": 3})})
    plain = ScriptedWarmLearner()
    calm = config.model_copy(update={"output": tmp_path / "calm"})
    going(calm, samples, plain).go()
    expected = {request.target.version: request.minibatches for request in plain.requests}
    crashes = 0
    for point in range(1, 80):
        again = config.model_copy(update={"output": tmp_path / f"crash{point}"})
        learner = ScriptedWarmLearner()
        with monkeypatch.context() as patched:
            made = going(again, samples, learner)
            crash_at(patched, learner, point)
            try:
                made.go()
                break
            except Crash:
                crashes += 1
        second = ScriptedWarmLearner()
        resumed = going(again, samples, second)
        resumed.go()
        done = {request.target.version: request.minibatches for request in [*learner.requests, *second.requests]}
        assert done == expected
        assert resumed.state.checkpoint.version == 3
        assert [one.round for one in resumed.state.evaluations] == [0, 2, 3]
        if second.requests:
            assert second.requests[0].base == load_before(learner, second)
    assert crashes > 30


def load_before(first: ScriptedWarmLearner, second: ScriptedWarmLearner) -> Any:
    """What the resumed run must build on: the target of the request before the one that it repeats."""
    version = second.requests[0].base.version
    targets = {request.target.version: request.target for request in first.requests}
    return targets.get(version, state.BASE)


def test_steps_that_change_nothing_make_no_version(config: WarmStartConfig, samples: Samples) -> None:
    made = going(config, samples, ScriptedWarmLearner(Faults(skip_steps=[0])))
    made.go()
    assert made.state.round == 5
    assert made.state.checkpoint == state.BASE
    assert made.state.in_vain == 5
    with pytest.raises(SettingsError, match="no round has changed the model"):
        write_final(config.output, made.state.checkpoint.folder, {})


def test_too_many_rounds_in_vain_and_a_learner_that_keeps_failing_end_the_run(
    config: WarmStartConfig, samples: Samples
) -> None:
    longer = config.model_copy(update={"training": config.training.model_copy(update={"rounds": 30})})
    with pytest.raises(GaveUp, match="10 rounds in a row changed nothing"):
        going(longer, samples, ScriptedWarmLearner(Faults(skip_steps=[0]))).go()
    other = longer.model_copy(update={"output": config.output / "other"})
    with pytest.raises(GaveUp, match="round 2 failed 3 times"):
        going(other, samples, ScriptedWarmLearner(Faults(fail_rounds=[1, 2, 3]))).go()
    made = going(other, samples, ScriptedWarmLearner(Faults(fail_rounds=[0, 1])))
    made.go()
    assert made.state.checkpoint.version == 30


def test_another_configuration_is_refused_but_more_rounds_are_not(config: WarmStartConfig, samples: Samples) -> None:
    going(config, samples, ScriptedWarmLearner()).go()
    with pytest.raises(SettingsError, match=r"seed: is not what the run in .* began with"):
        load_state(config.model_copy(update={"seed": 9}))
    longer = config.model_copy(update={"training": config.training.model_copy(update={"rounds": 7})})
    made = going(longer, samples, ScriptedWarmLearner())
    made.go()
    assert made.state.checkpoint.version == 7


def test_two_runs_in_one_folder_are_refused(config: WarmStartConfig) -> None:
    with (
        only_run(config.output),
        pytest.raises(SettingsError, match="another warm start is running"),
        only_run(config.output),
    ):
        pass


def test_forgetting_leaves_what_is_not_a_runs(config: WarmStartConfig, samples: Samples) -> None:
    going(config, samples, ScriptedWarmLearner()).go()
    (config.output / "notes.txt").write_text("mine")
    state.forget(config.output)
    assert load_state(config) is None
    assert not list(config.output.glob("v*"))
    assert (config.output / "notes.txt").exists()


def test_kept_samples_are_the_same_samples(config: WarmStartConfig, samples: Samples) -> None:
    keeping.save_samples(samples, config.output)
    kept = keeping.load_samples(config.output)
    assert kept == samples
    (config.output / "samples" / "train.jsonl").write_text("{")
    with pytest.raises(SettingsError, match="gone or damaged"):
        keeping.load_samples(config.output)


@given(available=st.integers(1, 40), count=st.integers(1, 17), seed=st.integers(0, 3))
def test_every_sample_comes_once_in_each_pass(available: int, count: int, seed: int) -> None:
    rounds = [picked(number, count, available, seed) for number in range(30)]
    stream = [place for places in rounds for place in places]
    assert all(len(places) == count for places in rounds)
    for start in range(0, len(stream) - available, available):
        assert sorted(stream[start : start + available]) == list(range(available))


def completion(text: str) -> SampledCompletion:
    return SampledCompletion(token_ids=[1, 0], logprobs=[-1, -1], text=text, text_offsets=[0, 1], finish="stop")


def test_unknown_rewards_are_masked_and_groups_without_baseline_use_the_tracker(samples: Samples) -> None:
    group = SampledGroup(prompt_token_ids=[1, 2], samples=[completion(text) for text in "abc"])
    training = Training(group_size=3, prompts_per_round=2, advantage="rloo")
    mixed = Scored(samples.train[0], group, (1.0, None, 0.0))
    equal = Scored(samples.train[1], group, (0.5, 0.5, 0.5))
    unknown = Scored(samples.train[2], group, (None, None, None))
    made = plan([mixed, equal, unknown], training, {}, prior=0.2)
    [first, second] = made.minibatches[0]
    assert [sample.advantage for sample in first.samples] == [1.0, -1.0]
    assert [sample.advantage for sample in second.samples] == pytest.approx([0.3, 0.3, 0.3])
    assert made.figures() == {"reward/mean": 0.5, "advantage/zero_share": 0.0, "group/no_baseline": 2.0}


def test_a_state_file_that_is_damaged_or_names_a_lost_checkpoint_is_said(config: WarmStartConfig) -> None:
    config.output.mkdir()
    (config.output / "state.json").write_text("{")
    with pytest.raises(SettingsError, match="is damaged"):
        load_state(config)
    lost = state.BASE.model_copy(update={"version": 3, "folder": str(config.output / "v000003")})
    RunState(run_id="x", data=data_of(config), round=3, checkpoint=lost).save(config.output)
    with pytest.raises(SettingsError, match="v000003 is gone"):
        load_state(config)


def test_a_sample_request_has_the_prompt_that_was_built(config: WarmStartConfig, samples: Samples) -> None:
    learner = ScriptedWarmLearner()
    going(config, samples, learner).go()
    tokenizer = PromptTokenizer.of(MODEL)
    prompts = {tuple(tokenizer.prompt_ids(sample.prompt)) for sample in [*samples.train, *samples.test]}
    asked: list[SampleRequest] = learner.drawn
    assert {tuple(prompt) for request in asked for prompt in request.prompts} <= prompts
