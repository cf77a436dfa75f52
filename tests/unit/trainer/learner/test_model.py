"""A packed forward pass equals a plain one for each sample, in values and gradients, however attention is computed."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Starcoder2Config,
)

from services.trainer.learner import attention_prefix, head
from services.trainer.learner.attention import KINDS, choose, dense_mask
from services.trainer.learner.batch import make_batch
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import micro_batches, plan_lanes
from services.trainer.learner_api import TrainGroup, TrainSample
from shared.kit.errors import SettingsError

VOCAB = 50
CPU = torch.device("cpu")
_QWEN2 = Qwen2Config(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.2,
)


def build(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.eval()


@pytest.fixture(scope="module")
def tiny() -> PreTrainedModel:
    return build(_QWEN2)


@pytest.fixture
def _flex_trains_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention refuses gradients on CPU and compiles for every shape; neither has to do with what it computes."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


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


def check_packed_equals_plain(model: PreTrainedModel, groups: list[TrainGroup], budget: int, kind_name: str) -> None:
    """Each sample alone behind its own prompt, through the model as transformers built it."""
    kind, policy = KINDS[kind_name], PackedPolicy(copy.deepcopy(model))
    batches = [
        make_batch(lanes, CPU, kind) for lanes in micro_batches(plan_lanes(groups, budget), budget, kind.stacked)
    ]
    packed = [policy(batch) for batch in batches]
    pairs = [(plain(model, g, s), s.advantage) for g in groups for s in g.samples]

    by_pack = sorted(torch.cat(packed).tolist())
    by_sample = sorted(torch.cat([logprobs for logprobs, _ in pairs]).tolist())
    assert by_pack == pytest.approx(by_sample, abs=1e-5, rel=1e-5)

    ours = total(objective(p, b.advantages_N) for p, b in zip(packed, batches, strict=True))
    other = total(objective(logprobs, torch.tensor(a)) for logprobs, a in pairs)
    torch.testing.assert_close(ours, other, atol=1e-5 * max(1, len(by_pack)), rtol=1e-5)

    expected = gradients(model, other)
    scale = max(float(g.abs().max()) for g in expected)
    for a, b in zip(gradients(policy.model, ours), expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5 * max(scale, 1.0), rtol=1e-5)


@pytest.mark.usefixtures("_flex_trains_on_cpu")
@pytest.mark.parametrize("kind", ["dense", "prefix", "flex"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(_group(), min_size=1, max_size=4), budget=st.sampled_from([8, 40, 4096]))
def test_packed_equals_plain(tiny: PreTrainedModel, kind: str, groups: list[TrainGroup], budget: int) -> None:
    check_packed_equals_plain(tiny, groups, budget, kind)


_SMALL: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}


@pytest.mark.usefixtures("_flex_trains_on_cpu")
@pytest.mark.parametrize("kind", ["dense", "prefix", "flex"])
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**_SMALL, **(_HEADS | {"num_key_value_heads": 4})),
        Qwen3Config(**_SMALL, **_HEADS, head_dim=16),
        Starcoder2Config(**_SMALL, **_HEADS, residual_dropout=0.0, embedding_dropout=0.0),
        GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2),
    ],
    ids=lambda config: config.model_type,
)
def test_other_families_need_no_code_of_ours(config: PretrainedConfig, kind: str) -> None:
    samples = [_plain_sample([4, 9, 2, 5]), _plain_sample([7, 1]), _plain_sample([3])]
    long = TrainGroup(group_id="a", prompt_token_ids=[*range(20)], temperature=0.7, samples=samples)
    short = TrainGroup(group_id="b", prompt_token_ids=[3, 8], temperature=1.0, samples=samples[:2])

    check_packed_equals_plain(build(config), [long, short], 100, kind)


def _plain_sample(tokens: list[int]) -> TrainSample:
    return TrainSample(
        token_ids=tokens, behaviour_logprobs=[-1.0] * len(tokens), credited_tokens=len(tokens), advantage=0.5
    )


@pytest.mark.usefixtures("_flex_trains_on_cpu")
@pytest.mark.parametrize("kind", ["prefix", "flex"])
def test_rows_longer_than_a_block_and_groups_longer_than_a_run(
    tiny: PreTrainedModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FlexAttention's blocks of 128 tokens that are seen whole, in part, and not at all; runs of a few samples each."""
    monkeypatch.setattr(attention_prefix, "RUN", 16)
    random = torch.Generator().manual_seed(3)

    def draw(count: int) -> list[int]:
        return torch.randint(VOCAB, (count,), generator=random).tolist()

    groups = [
        TrainGroup(
            group_id="g",
            prompt_token_ids=draw(prompt),
            temperature=1.0,
            samples=[_plain_sample(draw(length)) for length in lengths],
        )
        for prompt, lengths in ((300, [6, 9, 7, 30, 5]), (128, [129, 3]), (40, [8, 8, 8]))
    ]

    check_packed_equals_plain(tiny, groups, 1000, kind)


@pytest.mark.parametrize("kind", ["dense", "prefix"])
def test_gradient_checkpointing_sees_the_same_packing(tiny: PreTrainedModel, kind: str) -> None:
    groups = [
        TrainGroup(group_id="g", prompt_token_ids=[3, 8, 5], temperature=1.0, samples=[_plain_sample([4, 9, 2])] * 2)
    ] * 2
    batch = make_batch(plan_lanes(groups, 100), CPU, KINDS[kind])
    model = copy.deepcopy(tiny).train()
    kept = gradients(model, PackedPolicy(model)(batch).sum())
    model.gradient_checkpointing_enable({"use_reentrant": False})

    again = gradients(model, PackedPolicy(model)(batch).sum())

    for a, b in zip(again, kept, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["prefix", "flex"])
def test_a_model_that_ran_packed_still_runs_plainly(tiny: PreTrainedModel, kind: str) -> None:
    """With transformers' own mask for padding: the last row is padded on the left."""
    ids, mask = torch.tensor([[3, 8, 5, 4], [0, 0, 7, 1]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    model = copy.deepcopy(tiny)
    model.config._attn_implementation = KINDS[kind].implementation

    torch.testing.assert_close(
        model(ids, attention_mask=mask).logits[mask == 1], tiny(ids, attention_mask=mask).logits[mask == 1]
    )


class _Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation has made, and where L·L masks or scores would show."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def test_neither_all_logits_nor_a_mask_of_the_row_ever_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 groups of 200 + 3 x 11 tokens, 1,000 words: L·L is 868,624, N·V is 144,000, a chunk of logits 16,000."""
    model = build(Qwen2Config(**(_SMALL | {"vocab_size": 1000}), **_HEADS))
    samples = [_plain_sample([(7 * i + j) % 1000 for j in range(12)]) for i in range(3)]
    groups = [
        TrainGroup(
            group_id="g", prompt_token_ids=[(i * j) % 1000 for j in range(200)], temperature=1.0, samples=samples
        )
        for i in range(4)
    ]
    monkeypatch.setattr(head, "LOGITS_PER_CHUNK", 16_000)
    with _Largest() as largest:
        batch = make_batch(plan_lanes(groups, 2000), CPU, KINDS["prefix"])
        PackedPolicy(model)(batch).sum().backward()

    row = batch.token_ids_BL.numel()
    assert row == 960
    assert largest.elements <= row * 48  # the widest activation; weights are 1,000 x 32


def test_order_of_credited_tokens_is_the_lane_order(tiny: PreTrainedModel) -> None:
    """Sorting above hides a permutation; here one lane is compared token by token."""
    sample = TrainSample(token_ids=[4, 9, 2], behaviour_logprobs=[-1.0] * 3, credited_tokens=3, advantage=1.0)
    other = TrainSample(token_ids=[7, 1], behaviour_logprobs=[-1.0] * 2, credited_tokens=2, advantage=1.0)
    group = TrainGroup(group_id="g", prompt_token_ids=[3, 8], temperature=0.7, samples=[sample, other])

    packed = PackedPolicy(tiny)(make_batch(plan_lanes([group], 100), CPU))

    torch.testing.assert_close(packed, torch.cat([plain(tiny, group, s) for s in group.samples]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("wrapped", [False, True], ids=["linear", "module"])
def test_chunked_head_gives_the_same_values_and_gradients(
    bias: bool, wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the formula written down; a head that is not plain (an adapter on it) goes another way."""
    torch.manual_seed(0)
    linear = nn.Linear(8, VOCAB, bias=bias)
    hidden = torch.randn(7, 8, requires_grad=True)
    targets, temperatures = torch.randint(VOCAB, (7,)), torch.tensor([0.5, 1.0, 2.0, 1.0, 1.0, 0.3, 1.0])
    given = torch.randn(7)
    logits = linear(hidden) / temperatures.unsqueeze(1)
    expected = logits.log_softmax(1)[torch.arange(7), targets]
    monkeypatch.setattr(head, "LOGITS_PER_CHUNK", 3 * VOCAB)

    module = nn.Sequential(linear) if wrapped else linear
    found = head.head_logprobs(module, hidden, targets, temperatures, VOCAB)

    torch.testing.assert_close(found, expected)
    wanted = [hidden, *linear.parameters()]
    for a, b in zip(
        torch.autograd.grad(found, wanted, given), torch.autograd.grad(expected, wanted, given), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_a_frozen_head_gets_no_gradient() -> None:
    linear = nn.Linear(8, VOCAB).requires_grad_(False)
    hidden = torch.randn(3, 8, requires_grad=True)

    head.head_logprobs(linear, hidden, torch.tensor([1, 2, 3]), torch.ones(3), VOCAB).sum().backward()

    assert hidden.grad is not None
    assert linear.weight.grad is None


def test_attention_is_chosen_for_the_device_and_refused_where_it_cannot_run(tiny: PreTrainedModel) -> None:
    own = copy.deepcopy(tiny)
    own._supports_attention_backend = False

    assert choose("auto", tiny, CPU) is KINDS["prefix"]
    assert choose("auto", tiny, torch.device("cuda")) is KINDS["flex"]
    assert choose("auto", own, CPU) is KINDS["dense"]
    with pytest.raises(SettingsError, match="TABWISE_ATTENTION=flex needs a GPU"):
        choose("flex", tiny, CPU)
    with pytest.raises(SettingsError, match="TABWISE_ATTENTION=prefix: the attention of Qwen2ForCausalLM"):
        choose("prefix", own, CPU)


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
    mask = dense_mask(torch.tensor([[0, 0, 1, 2, 2, -1]]))

    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
