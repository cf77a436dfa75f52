"""On CUDA: compiled FlexAttention and prefix attention against the plain forward pass, in fp32 and in bfloat16."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from services.trainer.learner.attention import KINDS, choose
from services.trainer.learner.batch import make_batch
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import micro_batches, plan_lanes
from services.trainer.learner_api import TrainGroup, TrainSample

VOCAB = 500
SHAPES = [((300, [33, 9, 7, 64, 5]), (128, [129, 3]), (40, [8, 8, 8])), ((1000, [32] * 8),), ((5, [1, 2]), (700, [90]))]


def model_on_gpu(dtype: torch.dtype) -> PreTrainedModel:
    """Heads as in Qwen2.5-Coder-1.5B: 12 for queries, which is no power of two, and 2 for keys."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=768, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=12, num_key_value_heads=2,
    )  # fmt: skip
    model: nn.Module = Qwen2ForCausalLM(config)
    return cast(PreTrainedModel, model.to("cuda", dtype))


def groups_of(shape: tuple[tuple[int, list[int]], ...]) -> list[TrainGroup]:
    random = torch.Generator().manual_seed(3)

    def sample(length: int) -> TrainSample:
        tokens = torch.randint(VOCAB, (length,), generator=random).tolist()
        return TrainSample(
            token_ids=tokens, behaviour_logprobs=[-1.0] * length, credited_tokens=length, advantage=length / 50 - 0.3
        )

    return [
        TrainGroup(
            group_id=str(at),
            prompt_token_ids=torch.randint(VOCAB, (prompt,), generator=random).tolist(),
            temperature=1.0,
            samples=[sample(length) for length in lengths],
        )
        for at, (prompt, lengths) in enumerate(shape)
    ]


def loss_and_gradients(model: PreTrainedModel, groups: list[TrainGroup], kind_name: str) -> tuple[Tensor, list[Tensor]]:
    kind = KINDS[kind_name]
    batches = [
        make_batch(lanes, torch.device("cuda"), kind)
        for lanes in micro_batches(plan_lanes(groups, 4096), 4096, kind.stacked)
    ]
    policy = PackedPolicy(model)
    loss = torch.stack([(policy(batch) * batch.advantages_N).sum() for batch in batches]).sum()
    return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("kind", ["flex", "prefix"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)], ids=["float32", "bfloat16"]
)
def test_agrees_with_the_dense_mask(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    """Rows of different lengths, so that the kernel is compiled for more than one. The reference is fp32."""
    reference = model_on_gpu(torch.float32)
    model = model_on_gpu(dtype)
    for shape in SHAPES:
        groups = groups_of(shape)
        expected = loss_and_gradients(reference, groups, "dense")
        found = loss_and_gradients(model, groups, kind)

        torch.testing.assert_close(found[0], expected[0], atol=tolerance * 10, rtol=tolerance)
        for mine, theirs in zip(found[1], expected[1], strict=True):
            distance = (mine.float() - theirs).norm() / theirs.norm().clamp(min=1e-3)
            assert distance < tolerance


def test_flex_needs_no_mask_of_the_row() -> None:
    """16 groups in a row of 8,192 tokens: a boolean mask of it would take 64 MB, the scores of one head 128 MB."""
    model = model_on_gpu(torch.bfloat16)
    groups = groups_of(tuple((480, [17, 17]) for _ in range(16)))
    loss_and_gradients(model, groups_of(((480, [17, 17]),) * 2), "flex")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    kind = KINDS["flex"]
    batch = make_batch(plan_lanes(groups, 8192), torch.device("cuda"), kind)
    with torch.no_grad():
        PackedPolicy(model)(batch)

    assert batch.token_ids_BL.shape == (1, 8192)
    assert torch.cuda.max_memory_allocated() - before < 8192 * 768 * 2 * 16


def test_auto_is_flex() -> None:
    assert choose("auto", model_on_gpu(torch.bfloat16), torch.device("cuda")) is KINDS["flex"]
