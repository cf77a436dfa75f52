"""How the tokens of packed groups see one another. In: lanes side by side or in one row. Out: what the model is told.

Every kind computes the same: causal, and a token sees its own group's prompt and its own sample only. They differ in
how, and in what it costs (measured in docs/decisions/0015-packing-and-attention.md):

dense    lanes are stacked, one mask of B·L·L elements goes through SDPA: any model, the reference for the others
prefix   one row; for each group the prompt attends causally, then its samples to prompt and themselves: no L·L mask
flex     one row; FlexAttention skips the blocks of the row in which nobody sees anybody: CUDA

A kind is an `AttentionKind` in `KINDS`. `prefix` and `flex` are registered with transformers as attention functions, so
a model needs no code of ours; plain forward passes (sampling) go on with `sdpa`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from services.trainer.learner import attention_flex, attention_prefix
from services.trainer.learner.packing import PROMPT_SEGMENT, Lane
from services.trainer.learner_api import AttentionName
from shared.kit.errors import SettingsError

PADDING_SEGMENT = -1
STRIDE = 32
"""Rows are padded to a multiple of this. Shapes then recur: oneDNN keeps a kernel for each shape that it has met, and
in bfloat16 the process grew from 0.6 to 1.6 GB within 25 rounds of ever new lengths; now it stays at 0.85 GB."""


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """`arguments(lanes, length, device)`: keyword arguments of the model's forward pass that carry the packing."""

    implementation: str
    """Name of the attention function in transformers."""
    stacked: bool
    """Each lane is a row of its own; otherwise one row holds all lanes of a micro-batch, one behind the other."""
    stride: int
    """Rows are padded to a multiple of this."""
    arguments: Callable[[Sequence[Lane], int, torch.device], dict[str, Any]]


def dense_arguments(lanes: Sequence[Lane], length: int, device: torch.device) -> dict[str, Any]:
    """Every lane padded to `length`; one boolean mask [B, 1, L, L]."""
    rows = [lane.segment_ids + [PADDING_SEGMENT] * (length - lane.length) for lane in lanes]
    return {"attention_mask": dense_mask(torch.tensor(rows, device=device))}


def dense_mask(segment_ids_BL: Tensor) -> Tensor:
    """Boolean [B, 1, L, L]: causal, and a query sees the prompt and its own segment only.

    Padding is a segment too and sees itself, so that no row of the softmax is empty (an empty one gives NaN).
    """
    query_BL1, key_B1L = segment_ids_BL.unsqueeze(2), segment_ids_BL.unsqueeze(1)
    length = segment_ids_BL.shape[1]
    causal_LL = torch.ones(length, length, dtype=torch.bool, device=segment_ids_BL.device).tril()
    seen_BLL = causal_LL & ((key_B1L == PROMPT_SEGMENT) | (key_B1L == query_BL1))
    return seen_BLL.unsqueeze(1)


DENSE = AttentionKind("sdpa", True, STRIDE, dense_arguments)
PREFIX = AttentionKind(attention_prefix.IMPLEMENTATION, False, STRIDE, attention_prefix.arguments)
FLEX = AttentionKind(attention_flex.IMPLEMENTATION, False, attention_flex.BLOCK, attention_flex.arguments)
KINDS: Mapping[str, AttentionKind] = {"dense": DENSE, "prefix": PREFIX, "flex": FLEX}
"""By the value of `TABWISE_ATTENTION`, `auto` aside."""


def choose(name: AttentionName, model: PreTrainedModel, device: torch.device) -> AttentionKind:
    """The kind that the setting names; `auto`: the fastest that this model and device can do.

    Raises `SettingsError` where a named kind cannot run here.
    """
    pluggable = bool(getattr(model, "_supports_attention_backend", False))
    if name == "auto":
        name = "dense" if not pluggable else "flex" if device.type == "cuda" else "prefix"
    if name == "flex" and device.type != "cuda":
        raise SettingsError("TABWISE_ATTENTION=flex needs a GPU: FlexAttention has no backward pass on CPU; use prefix")
    if name != "dense" and not pluggable:
        raise SettingsError(
            f"TABWISE_ATTENTION={name}: the attention of {type(model).__name__} cannot be replaced; use dense or auto"
        )
    return KINDS[name]
