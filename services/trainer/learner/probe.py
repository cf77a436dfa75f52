"""The probe: a fixed short token sequence whose logprobs tell whether an engine serves these weights.

In: the base model's tokenizer, once. Out: `Probe` for each checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from services.trainer.learner.errors import blaming_model_path
from services.trainer.learner.packing import Lane, make_lane
from services.trainer.learner_api import TrainGroup, TrainSample
from shared.kit.errors import SettingsError

_TEXT = (
    "<|fim_prefix|>def total_price(items, tax_rate):\n    subtotal = 0\n    for item in items:\n        subtotal += "
    "<|fim_suffix|>\n    return subtotal * (1 + tax_rate)\n<|fim_middle|>item.price * item.quantity\n"
)
_MAX_TOKENS = 64


def probe_tokens(base_folder: Path) -> list[int]:
    """The sequence in this tokenizer's ids, at most 64 of them."""
    with blaming_model_path(f"the tokenizer of {base_folder} does not load"):
        tokens: list[int] = AutoTokenizer.from_pretrained(base_folder).encode(_TEXT, add_special_tokens=False)
    if len(tokens) < 2:
        raise SettingsError(f"TABWISE_MODEL_PATH: the tokenizer of {base_folder} makes nothing of the probe text")
    return tokens[:_MAX_TOKENS]


def probe_lane(tokens: list[int]) -> Lane:
    """The sequence as a lane at temperature 1: its first token is the prompt, all the others are credited."""
    rest = tokens[1:]
    sample = TrainSample(token_ids=rest, behaviour_logprobs=[0.0] * len(rest), credited_tokens=len(rest), advantage=0.0)
    group = TrainGroup(group_id="probe", prompt_token_ids=tokens[:1], temperature=1.0, samples=[sample])
    return make_lane(group, group.samples)
