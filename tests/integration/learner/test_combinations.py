"""Adapter × dtype × ZeRO stage × gradient checkpointing × offload: each trains and resumes, or is refused by name.

A covering array: every pair of values of two settings that can go together is in one of the rows that are run.
All in this process (a learner of one rank), which saves the start of another for each row.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from services.trainer.learner.checkpoint import CheckpointError
from services.trainer.learner.engine import deepspeed_config
from services.trainer.learner.ranks import Ranks
from services.trainer.learner.rounds import Learner
from services.trainer.learner_api import CheckpointRef, LearnerConfig, StepDone
from shared.contracts.checkpoint import Probe
from shared.kit.errors import SettingsError
from tests.integration.learner.conftest import first_round, second_round
from tests.integration.learner.support import groups

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:`torch.distributed:FutureWarning"),  # DeepSpeed's calls
]

FACTORS: dict[str, tuple[Any, ...]] = {
    "adapter": ("none", "lora"),
    "dtype": ("float32", "bfloat16"),
    "zero_stage": (0, 1, 2, 3),
    "gradient_checkpointing": (False, True),
    "offload": ("none", "optimizer", "all"),
}
Row = dict[str, Any]
ALL: list[Row] = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*FACTORS.values())]


def impossible(row: Row) -> set[str]:
    """The settings that the refusal must name."""
    if row["zero_stage"] == 0 and row["dtype"] == "bfloat16":
        return {"TABWISE_ZERO_STAGE", "TABWISE_LEARNER_DTYPE=bfloat16"}
    if row["zero_stage"] == 0 and row["offload"] == "optimizer":
        return {"TABWISE_ZERO_STAGE", "TABWISE_OFFLOAD=optimizer"}
    if row["zero_stage"] != 3 and row["offload"] == "all":
        return {"TABWISE_ZERO_STAGE", "TABWISE_OFFLOAD=all"}
    return set()


def pairs(row: Row) -> set[tuple[object, ...]]:
    return set(itertools.combinations(row.items(), 2))


def covering(rows: list[Row]) -> list[Row]:
    """Greedy: the row with the most pairs that are still missing, until none is."""
    missing = set().union(*map(pairs, rows))
    chosen = []
    while missing:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


CHOSEN = covering([row for row in ALL if not impossible(row)])


def ignore(step: StepDone) -> None:
    """Nobody to tell."""


def weights(checkpoint: CheckpointRef, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(Path(checkpoint.folder or "") / file)


def same(one: CheckpointRef, other: CheckpointRef, file: str = "model.safetensors") -> bool:
    """Bit for bit."""
    a, b = weights(one, file), weights(other, file)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_few_rows_hold_all_pairs() -> None:
    assert len(CHOSEN) <= 16


@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: "-".join(map(str, row.values())))
def test_trains_and_resumes_to_the_same_next_step(base_model: Path, ranks: Ranks, tmp_path: Path, row: Row) -> None:
    config = LearnerConfig(model_path=str(base_model), learning_rate=1e-2, lora_rank=4, **row)
    steps: list[StepDone] = []
    learner = Learner(config, ranks)
    learner.train(one := first_round(tmp_path), steps.append)
    learner.train(two := second_round(tmp_path, one.target), steps.append)
    resumed = Learner(config, ranks)
    resumed.verify(one.target)
    resumed.train(again := second_round(tmp_path / "again", one.target), ignore)

    assert all(step.skipped is None and math.isfinite(step.loss) and step.grad_norm > 0 for step in steps)
    assert steps[0].kl == pytest.approx(0, abs=1e-9)  # the adapter begins as nothing
    assert steps[2].kl > 1e-3
    assert not same(one.target, two.target)
    assert same(again.target, two.target)
    assert row["adapter"] == "none" or same(again.target, two.target, "adapter/adapter_model.safetensors")
    agree_with_probe(two.target, config.dtype)


def agree_with_probe(checkpoint: CheckpointRef, dtype: str) -> None:
    """Transformers computes the probe's logprobs from the folder's own files."""
    folder = Path(checkpoint.folder or "")
    probe = Probe.model_validate_json((folder / "probe.json").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    with torch.no_grad():
        logprobs_TV = model(torch.tensor([probe.token_ids])).logits[0].float().log_softmax(-1)
    expected = [float(logprobs_TV[t, token]) for t, token in enumerate(probe.token_ids[1:])]
    assert probe.logprobs == pytest.approx(expected, abs=1e-4 if dtype == "float32" else 0.05)


@pytest.mark.parametrize("row", [row for row in ALL if impossible(row)])
def test_what_cannot_work_is_refused_by_name(row: Row) -> None:
    with pytest.raises(SettingsError) as refused:
        deepspeed_config(LearnerConfig(model_path="m", **row))
    assert all(name in str(refused.value) for name in impossible(row))


@pytest.fixture(scope="module")
def lora(
    base_model: Path, ranks: Ranks, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LearnerConfig, CheckpointRef]:
    """A checkpoint with an adapter, and the settings that it was made with."""
    config = LearnerConfig(model_path=str(base_model), learning_rate=1e-2, adapter="lora", lora_rank=4)
    learner = Learner(config, ranks)
    learner.train(request := first_round(tmp_path_factory.mktemp("lora")), ignore)
    return config, request.target


def test_served_weights_are_the_base_with_the_adapter_merged(
    lora: tuple[LearnerConfig, CheckpointRef], base_model: Path
) -> None:
    """The folder `adapter/` loads with peft, says the same as the merged weights, and moved nothing else."""
    checkpoint = lora[1]
    folder = Path(checkpoint.folder or "")
    ids = torch.tensor([[5, 9, 200, 17, 3]])
    with_adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base_model), folder / "adapter")
    merged = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, with_adapter(ids).logits, atol=1e-5, rtol=0)

    before, after = load_file(base_model / "model.safetensors"), weights(checkpoint)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert moved == {name for name in before if name.endswith("_proj.weight")}
    assert (folder / "config.json").read_bytes() == (base_model / "config.json").read_bytes()
    said = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (said["r"], said["lora_alpha"], said["lora_dropout"]) == (4, 32.0, 0.0)


def test_state_to_resume_from_holds_the_adapter_alone(lora: tuple[LearnerConfig, CheckpointRef]) -> None:
    folder = Path(lora[1].folder or "") / "deepspeed" / "state"
    [weights_file] = folder.glob("*model_states.pt")
    module = torch.load(weights_file, weights_only=False)["module"]

    assert module
    assert all(".lora_A." in name or ".lora_B." in name for name in module)
    adapter = sum(tensor.numel() for tensor in module.values())
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < 4 * 7 * adapter + 50_000  # in single precision: weights and Adam's moments, some of them twice


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"adapter": "none"}, "TABWISE_ADAPTER=lora and cannot be resumed with none: set it back"),
        ({"lora_rank": 8}, "TABWISE_LORA_RANK=4 and cannot be resumed with 8"),
        ({"lora_alpha": 16.0}, "TABWISE_LORA_ALPHA=32.0 and cannot be resumed with 16.0"),
        ({"lora_targets": "q_proj"}, "TABWISE_LORA_TARGETS=all-linear and cannot be resumed with q_proj"),
    ],
)
def test_another_adapter_does_not_resume(
    lora: tuple[LearnerConfig, CheckpointRef], ranks: Ranks, change: dict[str, Any], expected: str
) -> None:
    config, checkpoint = lora
    with pytest.raises(CheckpointError, match=expected):
        Learner(config.model_copy(update=change), ranks).verify(checkpoint)


def test_step_that_is_skipped_leaves_the_adapter(
    lora: tuple[LearnerConfig, CheckpointRef], ranks: Ranks, tmp_path: Path
) -> None:
    config, checkpoint = lora
    bad = groups(4)
    bad[0].samples[0] = bad[0].samples[0].model_copy(update={"advantage": 1e39})
    steps: list[StepDone] = []
    request = second_round(tmp_path, checkpoint).model_copy(update={"minibatches": [bad]})
    Learner(config, ranks).train(request, steps.append)

    assert [step.skipped for step in steps] == ["non_finite"]
    assert same(request.target, checkpoint, "adapter/adapter_model.safetensors")
