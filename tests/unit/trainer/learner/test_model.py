"""A packed forward pass equals a plain one for each sample, in values and gradients."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from services.trainer.learner import model as model_module
from services.trainer.learner.batch import attention_mask, make_batch
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import micro_batches, plan_lanes
from services.trainer.learner_api import TrainGroup, TrainSample

VOCAB = 50
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    return Qwen2ForCausalLM(config)


_tokens = st.integers(0, VOCAB - 1)


@st.composite
def _sample(draw: st.DrawFn) -> TrainSample:
    tokens = draw(st.lists(_tokens, min_size=1, max_size=8))
    return TrainSample(
        token_ids=tokens,
        behaviour_logprobs=[-1.0] * len(tokens),
        credited_tokens=draw(st.integers(1, len(tokens))),
        advantage=draw(st.floats(-2, 2)),
    )


@st.composite
def _group(draw: st.DrawFn) -> TrainGroup:
    return TrainGroup(
        group_id="g",
        prompt_token_ids=draw(st.lists(_tokens, min_size=1, max_size=20)),
        temperature=draw(st.sampled_from([0.3, 1.0, 1.7])),
        samples=draw(st.lists(_sample(), min_size=1, max_size=5)),
    )


def plain(model: PreTrainedModel, group: TrainGroup, sample: TrainSample) -> Tensor:
    """Credited logprobs by an ordinary causal forward pass over prompt and sample."""
    start = len(group.prompt_token_ids)
    ids = torch.tensor([group.prompt_token_ids + sample.token_ids])
    logprobs = (model(ids).logits[0].float() / group.temperature).log_softmax(-1)
    at = torch.arange(start - 1, start - 1 + sample.credited_tokens)
    return logprobs[at, ids[0, at + 1]]


def objective(logprobs: Tensor, advantages: Tensor) -> Tensor:
    return (logprobs * advantages).sum()


def total(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum()


def gradients(model: PreTrainedModel, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(_group(), min_size=1, max_size=4), budget=st.sampled_from([8, 40, 4096]))
def test_packed_equals_plain(tiny: PreTrainedModel, groups: list[TrainGroup], budget: int) -> None:
    batches = [make_batch(lanes, CPU) for lanes in micro_batches(plan_lanes(groups, budget), budget)]
    packed = [PackedPolicy(tiny)(batch) for batch in batches]
    pairs = [(plain(tiny, g, s), s.advantage) for g in groups for s in g.samples]

    by_pack = sorted(torch.cat(packed).tolist())
    by_sample = sorted(torch.cat([logprobs for logprobs, _ in pairs]).tolist())
    assert by_pack == pytest.approx(by_sample, abs=1e-5, rel=1e-5)

    one = gradients(tiny, total(objective(p, b.advantages_N) for p, b in zip(packed, batches, strict=True)))
    other = gradients(tiny, total(objective(logprobs, torch.tensor(a)) for logprobs, a in pairs))
    scale = max(float(g.abs().max()) for g in other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5 * max(scale, 1.0), rtol=1e-5)


def test_order_of_credited_tokens_is_the_lane_order(tiny: PreTrainedModel) -> None:
    """Sorting above hides a permutation; here one lane is compared token by token."""
    sample = TrainSample(token_ids=[4, 9, 2], behaviour_logprobs=[-1.0] * 3, credited_tokens=3, advantage=1.0)
    other = TrainSample(token_ids=[7, 1], behaviour_logprobs=[-1.0] * 2, credited_tokens=2, advantage=1.0)
    group = TrainGroup(group_id="g", prompt_token_ids=[3, 8], temperature=0.7, samples=[sample, other])

    packed = PackedPolicy(tiny)(make_batch(plan_lanes([group], 100), CPU))

    torch.testing.assert_close(packed, torch.cat([plain(tiny, group, s) for s in group.samples]), atol=1e-5, rtol=0)


def test_chunked_head_gives_the_same_values_and_gradients(
    tiny: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = TrainSample(token_ids=[4, 9, 2, 5, 6], behaviour_logprobs=[-1.0] * 5, credited_tokens=5, advantage=1.0)
    group = TrainGroup(group_id="g", prompt_token_ids=[3, 8], temperature=0.7, samples=[sample] * 3)
    batch = make_batch(plan_lanes([group], 100), CPU)
    whole = PackedPolicy(tiny)(batch)

    monkeypatch.setattr(model_module, "_LOGITS_PER_CHUNK", 4 * VOCAB)
    chunked = PackedPolicy(tiny)(batch)

    torch.testing.assert_close(chunked, whole)
    for a, b in zip(gradients(tiny, chunked.sum()), gradients(tiny, whole.sum()), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)


def test_batch_knows_samples_and_which_are_too_old() -> None:
    sample = TrainSample(token_ids=[4, 9, 2], behaviour_logprobs=[-1.0] * 3, credited_tokens=2, advantage=1.0)
    new = TrainGroup(group_id="new", prompt_token_ids=[3, 8], temperature=0.7, samples=[sample] * 2)
    old = new.model_copy(update={"group_id": "old", "samples": [sample], "off_policy": True})

    batch = make_batch(plan_lanes([new, old], 100), CPU)

    assert batch.sequences.index_N.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.off_policy_N is not None
    assert batch.off_policy_N.tolist() == [False] * 4 + [True] * 2
    assert make_batch(plan_lanes([new], 100), CPU).off_policy_N is None


def test_mask_by_hand() -> None:
    """Prompt of two, samples of one and two tokens, one padding position."""
    mask = attention_mask(torch.tensor([[0, 0, 1, 2, 2, -1]]))

    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
