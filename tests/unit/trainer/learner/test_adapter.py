"""Which layers an adapter sits on, what it starts as, and what its merged weight is."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from services.trainer.learner.adapter import Adapter, linear_layers, targets
from services.trainer.learner_api import LearnerConfig
from shared.kit.errors import SettingsError

THERE = ["q_proj", "v_proj", "down_proj"]


def tiny(tied: bool = True) -> PreTrainedModel:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, tie_word_embeddings=tied,
        )
    )  # fmt: skip


def config(**changes: object) -> LearnerConfig:
    return LearnerConfig.model_validate({"model_path": "m", "adapter": "lora", "lora_rank": 4} | changes)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_no_place_for_an_adapter(tied: bool) -> None:
    assert linear_layers(tiny(tied)) == ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_targets_are_all_or_those_named() -> None:
    assert targets("all-linear", THERE) == THERE
    assert targets(" v_proj, q_proj,", THERE) == ["v_proj", "q_proj"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("q_proj,query", "no linear layer named query; write all-linear or some of q_proj, v_proj, down_proj"),
        ("lm_head", "no linear layer named lm_head"),
        (" , ", "TABWISE_LORA_TARGETS: names no layer; write all-linear or some of"),
    ],
)
def test_wrong_targets_say_what_there_is(wanted: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        targets(wanted, THERE)


def test_a_model_without_linear_layers_takes_none() -> None:
    with pytest.raises(SettingsError, match="TABWISE_ADAPTER must be none"):
        targets("all-linear", [])


def test_it_starts_as_nothing_and_always_the_same() -> None:
    ids = torch.tensor([[1, 2, 3]])
    plain, one, other = tiny(), tiny(), tiny()
    Adapter(one, config())
    torch.rand(7)
    Adapter(other, config())

    assert torch.equal(one(ids).logits, plain(ids).logits)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
    trained = {name for name, p in one.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_merged_weights_by_hand(dtype: torch.dtype, tied: bool) -> None:
    """W + alpha/rank · B A, under the base model's names; rounded once in bfloat16."""
    model = tiny(tied)
    model.to(dtype)  # type: ignore[arg-type]
    names = set(model.state_dict())
    adapter = Adapter(model, config(lora_alpha=6.0, lora_targets="v_proj"))
    layer = model.model.layers[1].self_attn.v_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.normal_()
    a, b, w = (t.weight.float() for t in (layer.lora_A["default"], layer.lora_B["default"], layer.base_layer))
    merged = adapter.merged(model.state_dict())

    assert set(merged) == names
    expected = (w + 1.5 * (b @ a)).to(dtype)
    assert torch.equal(merged["model.layers.1.self_attn.v_proj.weight"], expected)
    assert torch.equal(merged["model.layers.1.self_attn.v_proj.bias"], layer.base_layer.bias)
    assert (merged["lm_head.weight"].data_ptr() == merged["model.embed_tokens.weight"].data_ptr()) == tied


def test_disabled_it_is_the_base_model_and_trainable_afterwards() -> None:
    model, ids = tiny(), torch.tensor([[1, 2, 3]])
    before = model(ids).logits
    adapter = Adapter(model, config())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_()
    assert not torch.equal(model(ids).logits, before)
    with adapter.disabled():
        assert torch.equal(model(ids).logits, before)
    assert any(p.requires_grad for p in model.parameters())
