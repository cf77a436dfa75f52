"""A micro-batch as tensors. In: lanes. Out: the input of model and loss. B lanes, L positions, N credited tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.learner.packing import PROMPT_SEGMENT, Lane
from services.trainer.learner.sequences import Sequences, sequences_of

_PADDING_SEGMENT = -1
STRIDE = 32
"""Lanes are padded to a multiple of this. Shapes then recur: oneDNN keeps a kernel for each shape that it has met, and
in bfloat16 the process grew from 0.6 to 1.6 GB within 25 rounds of ever new lengths; now it stays at 0.85 GB."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`predict_index_N` points into the B·L flattened positions; `mask_B1LL` is true where a query sees a key."""

    token_ids_BL: Tensor
    position_ids_BL: Tensor
    mask_B1LL: Tensor
    predict_index_N: Tensor
    targets_N: Tensor
    behaviour_logprobs_N: Tensor
    advantages_N: Tensor
    temperatures_N: Tensor
    sequences: Sequences
    off_policy_N: Tensor | None
    """None where no lane is."""


def make_batch(lanes: Sequence[Lane], device: torch.device) -> Batch:
    """Pad the lanes to the longest of them (rounded up to `STRIDE`) and put their credited tokens one after another."""
    length = -(-max(lane.length for lane in lanes) // STRIDE) * STRIDE

    def padded(rows: list[list[int]], filler: int) -> Tensor:
        return torch.tensor([row + [filler] * (length - len(row)) for row in rows], device=device)

    def joined(values: list[list[float]]) -> Tensor:
        return torch.tensor([v for row in values for v in row], dtype=torch.float32, device=device)

    predict_at = [row * length + at for row, lane in enumerate(lanes) for at in lane.predict_at]
    return Batch(
        token_ids_BL=padded([lane.token_ids for lane in lanes], 0),
        position_ids_BL=padded([lane.position_ids for lane in lanes], 0),
        mask_B1LL=attention_mask(padded([lane.segment_ids for lane in lanes], _PADDING_SEGMENT)),
        predict_index_N=torch.tensor(predict_at, device=device),
        targets_N=torch.tensor([t for lane in lanes for t in lane.targets], device=device),
        behaviour_logprobs_N=joined([lane.behaviour_logprobs for lane in lanes]),
        advantages_N=joined([lane.advantages for lane in lanes]),
        temperatures_N=joined([lane.temperatures for lane in lanes]),
        sequences=sequences_of([length for lane in lanes for length in lane.sample_lengths], device),
        off_policy_N=_off_policy(lanes, device),
    )


def _off_policy(lanes: Sequence[Lane], device: torch.device) -> Tensor | None:
    if not any(lane.off_policy for lane in lanes):
        return None
    return torch.tensor([lane.off_policy for lane in lanes for _ in lane.targets], device=device)


def attention_mask(segment_ids_BL: Tensor) -> Tensor:
    """Boolean [B, 1, L, L]: causal, and a query sees the prompt and its own segment only.

    Padding is a segment too and sees itself, so that no row of the softmax is empty (an empty one gives NaN).
    """
    query_BL1, key_B1L = segment_ids_BL.unsqueeze(2), segment_ids_BL.unsqueeze(1)
    length = segment_ids_BL.shape[1]
    causal_LL = torch.ones(length, length, dtype=torch.bool, device=segment_ids_BL.device).tril()
    seen_BLL = causal_LL & ((key_B1L == PROMPT_SEGMENT) | (key_B1L == query_BL1))
    return seen_BLL.unsqueeze(1)
