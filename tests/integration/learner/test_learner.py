"""A real learner process over its socket: rounds, checkpoints, resuming, refusing, dying."""

from __future__ import annotations

import math
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.learner_api import (
    CheckpointRef,
    LearnerConfig,
    RoundDone,
    RoundFailed,
    StepDone,
    TrainGroup,
    TrainRequest,
)
from shared.contracts.checkpoint import Probe
from tests.integration.learner.conftest import Trained, first_round, ref, second_round
from tests.integration.learner.support import BASE, groups, learner

pytestmark = pytest.mark.timeout(400)  # five starts of DeepSpeed; on idle cores a minute in all


def weights(checkpoint: CheckpointRef) -> dict[str, torch.Tensor]:
    assert checkpoint.folder is not None
    return load_file(Path(checkpoint.folder) / "model.safetensors")


def distance(one: CheckpointRef, other: CheckpointRef) -> float:
    """Largest difference of any weight."""
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_rounds_train_and_report(trained: Trained) -> None:
    ready, steps = trained.driver.ready, trained.steps

    assert (ready.ranks, ready.device) == (1, "cpu")
    assert ready.parameters > 50_000
    assert [step.minibatch for step in steps] == [0, 1, 0]
    assert all(step.skipped is None and step.grad_norm > 0 and step.groups == 3 for step in steps)
    assert steps[0].tokens == sum(s.credited_tokens for g in groups(1) for s in g.samples)
    assert steps[0].kl == pytest.approx(0, abs=1e-9)  # the reference is where we start
    assert steps[1].kl > 0
    assert steps[0].clip_share == 0  # the proximal policy is the current one
    assert all(0 < step.effective_sample_share <= 1 and step.importance_max >= step.importance_mean for step in steps)
    assert distance(trained.first, trained.second) > 1e-3


def test_checkpoint_is_a_hugging_face_folder_with_a_true_probe(trained: Trained, base_model: Path) -> None:
    """Transformers loads it, and computes the probe's logprobs from it."""
    folder = Path(trained.second.folder or "")
    probe = Probe.model_validate_json((folder / "probe.json").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logprobs = model(torch.tensor([probe.token_ids])).logits[0].log_softmax(-1)
    expected = [float(logprobs[t, token]) for t, token in enumerate(probe.token_ids[1:])]

    assert probe.version == 2
    assert probe.logprobs == pytest.approx(expected, abs=1e-4)
    assert "<|fim_prefix|>def total_price" in AutoTokenizer.from_pretrained(folder).decode(probe.token_ids)
    assert (folder / "model.safetensors").stat().st_mode & 0o044 == 0o044
    assert all(tensor.dtype == torch.float32 for tensor in weights(trained.second).values())
    assert (folder / "config.json").read_bytes() == (base_model / "config.json").read_bytes()
    assert sorted(path.name for path in trained.folder.iterdir() if "tmp" in path.name) == []


def test_scalars_reach_tensorboard(trained: Trained, config: LearnerConfig) -> None:
    """Written in the background, so perhaps a moment after the answer."""
    board = EventAccumulator(config.tensorboard_dir)
    deadline = time.monotonic() + 10
    while "round/reward" not in board.Reload().Tags()["scalars"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert [event.step for event in board.Scalars("train/loss")][:3] == [1, 2, 3]
    assert board.Scalars("round/reward")[0].value == 0.5
    assert board.Scalars("round/reward")[0].step == 1
    for name in ("logprob_gap_mean", "logprob_gap_max", "effective_sample_share"):
        assert board.Scalars(f"train/{name}")[0].value > 0
        assert board.Scalars(f"round/{name}")[0].value > 0


def test_other_base_than_in_memory_is_loaded(trained: Trained, tmp_path: Path) -> None:
    """Memory holds version 2; a request on version 1 gives what version 1 gave before."""
    again = second_round(tmp_path, trained.first)
    _, done = trained.driver.train(again)

    assert isinstance(done, RoundDone), done
    assert distance(again.target, trained.second) == 0


def test_uncommitted_attempt_is_replaced(trained: Trained, tmp_path: Path) -> None:
    """A folder of an attempt that was never committed, and a draft of one that was killed, make way."""
    again = second_round(tmp_path, trained.first)
    for name in ("v000002", "v000002.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "junk").touch()
    _, done = trained.driver.train(again)

    assert isinstance(done, RoundDone), done
    assert distance(again.target, trained.second) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["v000002"]
    assert not (tmp_path / "v000002" / "junk").exists()


def test_base_model_again_starts_with_a_new_optimiser(trained: Trained, tmp_path: Path) -> None:
    _, done = trained.driver.train(again := first_round(tmp_path))

    assert isinstance(done, RoundDone), done
    assert distance(again.target, trained.first) == 0


INFINITE: dict[str, object] = {"advantage": 1e39}
"""In single precision."""
NAN: dict[str, object] = {"token_ids": [1], "behaviour_logprobs": [math.nan], "credited_tokens": 1}


def poisoned(change: dict[str, object] = INFINITE) -> list[TrainGroup]:
    """One sample in the middle that makes the loss infinite or not a number."""
    good = groups(4)
    sample = good[1].samples[0].model_copy(update=change)
    return [good[0], good[1].model_copy(update={"samples": [sample, *good[1].samples[1:]]}), good[2]]


@pytest.mark.parametrize("change", [INFINITE, NAN], ids=["infinite", "nan"])
def test_non_finite_step_changes_nothing(trained: Trained, tmp_path: Path, change: dict[str, object]) -> None:
    """Skipped between two others, it leaves weights, optimiser and gradients as if it had never been."""
    minibatches = [groups(1), poisoned(change), groups(2)]
    with_it = TrainRequest(base=BASE, target=ref(tmp_path, 1, "a"), minibatches=minibatches)
    steps, done = trained.driver.train(with_it)

    assert isinstance(done, RoundDone), done
    assert [step.skipped for step in steps] == [None, "non_finite", None]
    assert distance(with_it.target, trained.first) == 0


def apart(groups: list[TrainGroup], nats: float) -> list[TrainGroup]:
    """As if the engine had computed other logprobs than the learner does."""
    return [
        group.model_copy(
            update={
                "samples": [
                    sample.model_copy(update={"behaviour_logprobs": [p - nats for p in sample.behaviour_logprobs]})
                    for sample in group.samples
                ]
            }
        )
        for group in groups
    ]


def test_engine_and_learner_too_far_apart_change_nothing(trained: Trained, tmp_path: Path) -> None:
    """Refused between two others, with the gap that it was refused for; too old experience is not held to it."""
    old = [group.model_copy(update={"off_policy": True}) for group in apart(groups(4), 3.0)]
    request = TrainRequest(
        base=BASE, target=ref(tmp_path, 1, "a"), minibatches=[groups(1), apart(groups(4), 3.0), groups(2)]
    )
    steps, done = trained.driver.train(request)
    stale, _ = trained.driver.train(TrainRequest(base=BASE, target=ref(tmp_path / "b", 1, "b"), minibatches=[old]))

    assert isinstance(done, RoundDone), done
    assert [step.skipped for step in steps] == [None, "logprob_gap", None]
    assert 2.5 < steps[1].logprob_gap_mean < steps[1].logprob_gap_max < 4.5
    assert 0 < steps[0].logprob_gap_mean < steps[0].logprob_gap_max < 1
    assert distance(request.target, trained.first) == 0
    assert [(step.skipped, step.logprob_gap_mean) for step in stale] == [(None, 0.0)]
    assert stale[0].grad_norm > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lineage": "another-round"}, "holds version 1 of round round-1, not 1 of another-round"),
        ({"folder": "/nowhere/v000001"}, "not a whole checkpoint"),
        ({"folder": None}, "names no folder"),
    ],
)
def test_wrong_base_is_refused(trained: Trained, tmp_path: Path, change: dict[str, str], expected: str) -> None:
    base = trained.first.model_copy(update=change)
    steps, failed = trained.driver.train(second_round(tmp_path, base))

    assert isinstance(failed, RoundFailed)
    assert expected in failed.error
    assert steps == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("damage", "expected"), [("missing", "has no deepspeed/"), ("corrupt", "could not be read")])
def test_damaged_state_is_refused_and_the_learner_lives(
    trained: Trained, tmp_path: Path, damage: str, expected: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained.first.folder or "", broken)
    if damage == "missing":
        shutil.rmtree(broken / "deepspeed")
    else:
        for file in (broken / "deepspeed" / "state").iterdir():
            file.write_bytes(b"no")
    base = trained.first.model_copy(update={"folder": str(broken)})
    _, failed = trained.driver.train(second_round(tmp_path, base))
    _, done = trained.driver.train(again := second_round(tmp_path, trained.first))

    assert isinstance(failed, RoundFailed)
    assert expected in failed.error
    assert "\n" not in failed.error
    assert isinstance(done, RoundDone), done
    assert distance(again.target, trained.second) == 0


def test_bad_requests_are_answered(trained: Trained, tmp_path: Path) -> None:
    trained.driver.connection.send_bytes(b'{"kind": "train"}')
    assert "base: Field required" in str(trained.driver.receive())

    request = TrainRequest(base=BASE, target=ref(tmp_path, 1, "a"), minibatches=[[]])
    _, failed = trained.driver.train(request)
    assert failed == RoundFailed(error="ValueError: a mini-batch without groups")


def agree(mine: list[StepDone], theirs: list[StepDone]) -> None:
    """The same figures but for the order of sums."""
    for one, other in zip(mine, theirs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=2e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)
        assert one.tokens == other.tokens


def test_resume_after_kill_during_save(trained: Trained, config: LearnerConfig, tmp_path: Path) -> None:
    """SIGKILL while a checkpoint is being written leaves its draft alone; a new process resumes to the same weights.

    Without ZeRO, with gradient checkpointing and short rows: that must not make a difference to the fixture's learner.
    """
    plain = {"zero_stage": 0, "gradient_checkpointing": True, "max_row_tokens": 64, "tensorboard_dir": None}
    with learner(config.model_copy(update=plain)) as driver:
        steps, _ = driver.train(one := first_round(tmp_path))
        more, _ = driver.train(two := second_round(tmp_path, one.target))
        agree(steps + more, trained.steps)
        assert distance(two.target, trained.second) < 1e-3
        driver.send(killed := second_round(tmp_path / "killed", one.target))
        _wait_for(tmp_path / "killed")
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait(10)
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["v000002.tmp"]

    with learner(config.model_copy(update=plain)) as driver:
        _, done = driver.train(killed)
        assert isinstance(done, RoundDone), done
        assert distance(killed.target, two.target) == 0
        _, refused = driver.train(second_round(tmp_path / "late", trained.first))
        driver.send(second_round(tmp_path / "late", one.target))  # and hang up in the middle of a round
    assert isinstance(refused, RoundFailed)
    assert "TABWISE_ZERO_STAGE=2 and cannot be resumed with 0" in refused.error
    assert driver.process.returncode == 0
    assert not (tmp_path / "late" / "v000002").exists()


def _wait_for(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while not (folder.is_dir() and any(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.0005)


def test_two_ranks_with_zero_3_agree_with_one(trained: Trained, config: LearnerConfig, tmp_path: Path) -> None:
    """Also where one rank has nothing to do, and where a step is skipped."""
    with learner(config.model_copy(update={"zero_stage": 3, "tensorboard_dir": None}), ranks=2) as driver:
        steps, _ = driver.train(one := first_round(tmp_path))
        more, done = driver.train(two := second_round(tmp_path, one.target))
        few = TrainRequest(
            base=one.target, target=ref(tmp_path, 3, "few"), minibatches=[groups(7, count=1), poisoned()]
        )
        fewer, _ = driver.train(few)
        _, refused = driver.train(second_round(tmp_path, trained.first))
    assert driver.process.returncode == 0
    assert driver.ready.ranks == 2
    assert isinstance(done, RoundDone), done

    agree(steps + more, trained.steps)
    assert distance(one.target, trained.first) < 1e-4
    assert distance(two.target, trained.second) < 1e-3
    assert [step.skipped for step in fewer] == [None, "non_finite"]
    assert isinstance(refused, RoundFailed)
    assert "TABWISE_LEARNER_RANKS=1 and cannot be resumed with 2: set it back" in refused.error


def test_bfloat16_and_warmup_survive_a_reload(config: LearnerConfig, tmp_path: Path) -> None:
    """Master weights, moments and the schedule come back: training on from the reloaded version 1 is the same."""
    update = {"dtype": "bfloat16", "warmup_steps": 4, "zero_stage": 1, "tensorboard_dir": str(tmp_path / "board")}
    with learner(config.model_copy(update=update)) as driver:
        driver.train(one := first_round(tmp_path))
        driver.train(two := second_round(tmp_path, one.target))
        _, done = driver.train(again := second_round(tmp_path / "again", one.target))
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()

    assert isinstance(done, RoundDone), done
    assert {tensor.dtype for tensor in weights(two.target).values()} == {torch.bfloat16}
    assert distance(one.target, two.target) > 1e-3
    assert distance(again.target, two.target) == 0
    assert [event.value for event in board.Scalars("train/learning_rate")] == pytest.approx(
        [0.0025, 0.005, 0.0075, 0.0075], abs=1e-6
    )


def test_the_reference_may_be_another_model(config: LearnerConfig, trained: Trained, tmp_path: Path) -> None:
    """A policy is at distance 0 of itself, and the checkpoint is not the base model."""
    itself = {"reference_path": trained.first.folder, "tensorboard_dir": None}
    with learner(config.model_copy(update=itself)) as driver:
        [step], _ = driver.train(second_round(tmp_path, trained.first))

    assert step.kl == pytest.approx(0, abs=1e-9)
    assert trained.steps[2].kl > 1e-6


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_changed_learning_rate_holds_after_a_resume(config: LearnerConfig, tmp_path: Path, warmup: int) -> None:
    """Adam's first steps are as long as the rate: the setting's, not the one that the state was saved with."""
    fast = {"learning_rate": 1e-2, "warmup_steps": warmup, "tensorboard_dir": None}
    with learner(config.model_copy(update=fast)) as driver:
        driver.train(one := first_round(tmp_path))
    with learner(config.model_copy(update=fast | {"learning_rate": 1e-6})) as driver:
        _, done = driver.train(two := second_round(tmp_path, one.target))

    assert isinstance(done, RoundDone), done
    assert 0 < distance(one.target, two.target) < 1e-5


def test_model_that_does_not_load_is_reported_to_the_trainer(config: LearnerConfig, tmp_path: Path) -> None:
    with learner(config.model_copy(update={"model_path": str(tmp_path), "tensorboard_dir": None})) as driver:
        hello = driver.hello

    assert isinstance(hello, RoundFailed)
    assert hello.error.startswith(f"TABWISE_MODEL_PATH: the tokenizer of {tmp_path} does not load")
    assert driver.process.returncode == 2
