"""The same tokens, rewards and logprobs through TRL's trainers and through ours: advantages, loss, gradient.

TRL runs each sample with its own prompt in a padded batch; ours runs packed groups in several micro-batches. Loss and
gradient agree to 1e-5 of the largest gradient, fp32. Where the two define something differently, the test says what:
TRL divides by the sample's deviation (G - 1 in it), we by the population's (G); TRL multiplies its KL term by the ratio
unless `use_bias_correction_kl=False`, which is DeepSeekMath's eq. 3 and ours.
"""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from services.trainer.advantages import ESTIMATORS, GroupRewards
from services.trainer.learner.aggregation import MinibatchSize
from services.trainer.learner.attention import PREFIX
from services.trainer.learner.batch import Batch, make_batch
from services.trainer.learner.loss import Objective, Tokens
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import micro_batches, plan_lanes
from services.trainer.learner_api import LearnerConfig, TrainGroup, TrainSample
from tests.contract import tiny_model
from tests.unit.trainer.learner.trl_side import Said, grpo_trainer, rloo_trainer, trl_inputs

pytestmark = pytest.mark.filterwarnings("ignore")  # what TRL, datasets and accelerate warn about at import

GROUPS, MEMBERS, LONGEST, TEMPERATURE, CAP = 3, 4, 9, 0.7, 1.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.build(tmp_path_factory.mktemp("trl"))


@pytest.fixture(scope="module")
def base(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def said(base: PreTrainedModel) -> list[Said]:
    """Prompts and completions of different lengths; behaviour logprobs that are those of a policy some steps away."""
    random = Random(5)
    prompts = [[random.randrange(200) for _ in range(random.randint(3, 20))] for _ in range(GROUPS)]
    return [
        Said(
            group=group,
            prompt=prompt,
            tokens=[random.randrange(200) for _ in range(length)],
            behaviour=[-math.log(base.config.vocab_size) + random.gauss(0, 0.3) for _ in range(length)],
            reward=random.choice([0.75, -0.25, 0.0, 0.4]) + random.random() / 10,
        )
        for group, prompt in enumerate(prompts)
        for length in (random.randint(1, LONGEST) for _ in range(MEMBERS))
    ]


def moved(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A policy near this one: some ratios beyond the clip, some not."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
    return other


def grouped(said: Sequence[Said], advantages: Sequence[float]) -> list[TrainGroup]:
    """As a `TrainRequest` has them."""
    samples = [
        TrainSample(
            token_ids=one.tokens, behaviour_logprobs=one.behaviour, credited_tokens=len(one.tokens), advantage=advantage
        )
        for one, advantage in zip(said, advantages, strict=True)
    ]
    return [
        TrainGroup(
            group_id=str(group),
            prompt_token_ids=said[group * MEMBERS].prompt,
            temperature=TEMPERATURE,
            samples=samples[group * MEMBERS : (group + 1) * MEMBERS],
        )
        for group in range(GROUPS)
    ]


def ours(
    now: PreTrainedModel, before: PreTrainedModel, reference: PreTrainedModel | None,
    groups: list[TrainGroup], **options: Any,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Loss and gradient of one mini-batch, as the learner takes a step: several micro-batches, summed."""
    objective = Objective(LearnerConfig(model_path="", max_completion_tokens=LONGEST, importance_cap=CAP, **options))
    lanes = plan_lanes(groups, 60)
    size = MinibatchSize(sum(lane.credited for lane in lanes), sum(len(lane.sample_lengths) for lane in lanes))
    batches = [make_batch(part, torch.device("cpu"), PREFIX) for part in micro_batches(lanes, 60, stacked=False)]
    assert len(batches) > 1
    loss = torch.stack([_part(objective, batch, now, before, reference) for batch in batches]).sum()
    loss = loss / objective.aggregation.divisor(size)
    return loss, list(torch.autograd.grad(loss, list(now.parameters())))


def _part(
    objective: Objective, batch: Batch, now: PreTrainedModel, before: PreTrainedModel, reference: PreTrainedModel | None
) -> Tensor:
    with torch.no_grad():
        before_N = PackedPolicy(before)(batch)
        reference_N = None if reference is None else PackedPolicy(reference)(batch)
    tokens = Tokens(
        logprobs_N=PackedPolicy(now)(batch),
        behaviour_N=batch.behaviour_logprobs_N,
        advantages_N=batch.advantages_N,
        sequences=batch.sequences,
        proximal_N=before_N,
        reference_N=reference_N,
    )
    return objective.aggregation.part(objective(tokens).loss_N, batch.sequences)


def theirs(trainer: Any, inputs: dict[str, Any], now: PreTrainedModel) -> tuple[Tensor, list[Tensor]]:
    """TRL's loss and gradient, once its model has the weights of `now`."""
    trainer.model.load_state_dict(now.state_dict())
    loss = trainer.compute_loss(trainer.model, inputs)
    return loss, list(torch.autograd.grad(loss, list(trainer.model.parameters())))


def assert_same(one: tuple[Tensor, list[Tensor]], other: tuple[Tensor, list[Tensor]], *, loss: bool = True) -> None:
    if loss:
        torch.testing.assert_close(one[0], other[0], atol=1e-5, rtol=1e-5)
    scale = max(float(grad.abs().max()) for grad in other[1])
    assert scale > 1e-3
    for mine, theirs in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5 * max(scale, 1.0), rtol=1e-4)


def rewards_of(said: Sequence[Said]) -> list[GroupRewards]:
    return [GroupRewards(tuple(one.reward for one in said if one.group == group), value=0.0) for group in range(GROUPS)]


def flat(advantages: Sequence[Sequence[float]]) -> list[float]:
    return [value for group in advantages for value in group]


def test_grpo_advantages_differ_by_the_deviation_alone(base: PreTrainedModel, folder: Path, said: list[Said]) -> None:
    """TRL: (r - mean) / (std_{G-1} + 1e-4). Ours: (r - mean) / (std_G + 1e-6). So theirs = ours · sqrt((G - 1) / G)."""
    inputs = trl_inputs(grpo_trainer(copy.deepcopy(base), folder, said, scale_rewards="group"), said)

    expected = [value * math.sqrt((MEMBERS - 1) / MEMBERS) for value in flat(ESTIMATORS["grpo"](rewards_of(said)))]
    assert inputs["advantages"].tolist() == pytest.approx(expected, rel=1e-3)


def test_unscaled_and_leave_one_out_advantages_are_equal(base: PreTrainedModel, folder: Path, said: list[Said]) -> None:
    grpo = trl_inputs(grpo_trainer(copy.deepcopy(base), folder, said, scale_rewards="none"), said)
    rloo = trl_inputs(rloo_trainer(copy.deepcopy(base), folder, said, beta=0.0), said)

    assert grpo["advantages"].tolist() == pytest.approx(flat(ESTIMATORS["dr_grpo"](rewards_of(said))), abs=1e-6)
    assert rloo["advantages"].tolist() == pytest.approx(flat(ESTIMATORS["rloo"](rewards_of(said))), abs=1e-6)


@pytest.mark.parametrize(
    ("loss_type", "aggregation"),
    [("grpo", "sequence_mean"), ("bnpo", "token_mean"), ("dapo", "token_mean"), ("dr_grpo", "dr_grpo")],
)
@pytest.mark.parametrize("clip_high", [0.2, 0.28], ids=["clip", "clip_higher"])
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_loss_and_gradient_are_equal(
    base: PreTrainedModel,
    folder: Path,
    said: list[Said],
    loss_type: str,
    aggregation: str,
    clip_high: float,
    beta: float,
) -> None:
    """No importance correction; the ratio is between two policies, the reference a third."""
    before, now = moved(base, 1), moved(moved(base, 1), 2)
    trainer = grpo_trainer(
        copy.deepcopy(before), folder, said, loss_type=loss_type, epsilon=0.2, epsilon_high=clip_high, beta=beta,
        use_bias_correction_kl=False,
        temperature=TEMPERATURE, max_completion_length=LONGEST,
    )  # fmt: skip
    inputs = trl_inputs(trainer, said)

    found = ours(
        now, before, base if beta else None, grouped(said, inputs["advantages"].tolist()),
        aggregation=aggregation, loss="clip_higher" if clip_high > 0.2 else "clip", clip_low=0.2, clip_high=clip_high,
        importance="none", kl_coef=beta, kl_estimator="k3",
    )  # fmt: skip

    assert_same(found, theirs(trainer, inputs, now))


@pytest.mark.parametrize("correction", ["token_truncate", "sequence_truncate", "sequence_mask"])
def test_importance_correction_is_equal(base: PreTrainedModel, folder: Path, said: list[Said], correction: str) -> None:
    """TRL's `vllm_importance_sampling_mode`; its `token_mask` has no counterpart here."""
    before, now = moved(base, 1), moved(moved(base, 1), 2)
    trainer = grpo_trainer(
        copy.deepcopy(before), folder, said, loss_type="bnpo", epsilon=0.2, epsilon_high=0.28, beta=0.05,
        use_bias_correction_kl=False,
        temperature=TEMPERATURE, max_completion_length=LONGEST, vllm_importance_sampling_mode=correction,
        vllm_importance_sampling_clip_min=None, vllm_importance_sampling_clip_max=CAP,
    )  # fmt: skip
    trainer.use_vllm = True  # the correction is bound to it; the engine itself is not asked
    inputs = trl_inputs(trainer, said)
    ratios = inputs["importance_sampling_ratio"]
    assert ((ratios == 0) | (ratios == CAP)).any()
    assert ((ratios > 0) & (ratios < CAP)).any()

    found = ours(
        now, before, base, grouped(said, inputs["advantages"].tolist()),
        aggregation="token_mean", loss="clip_higher", importance=correction, kl_coef=0.05, kl_estimator="k3",
    )  # fmt: skip

    assert_same(found, theirs(trainer, inputs, now))


def test_rloo_has_our_gradient_on_policy(base: PreTrainedModel, folder: Path, said: list[Said]) -> None:
    """TRL's RLOO has one ratio for the whole sample, we one for each token: on policy the gradients are the same,
    -A Σ_t ∇log π_t averaged over samples, which is `dr_grpo` with L = 1. The loss's value is not (-A, and -A |y|)."""
    trainer = rloo_trainer(
        copy.deepcopy(base), folder, said, beta=0.0, temperature=TEMPERATURE, max_completion_length=LONGEST
    )
    inputs = trl_inputs(trainer, said)

    loss, gradient = ours(
        base, base, None, grouped(said, inputs["advantages"].tolist()),
        aggregation="dr_grpo", importance="none", kl_coef=0.0,
    )  # fmt: skip

    assert_same((loss, [LONGEST * grad for grad in gradient]), theirs(trainer, inputs, base), loss=False)
