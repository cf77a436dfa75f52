"""A micro-batch as tensors. In: lanes. Out: the input of model and loss. B rows, L positions, N credited tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.learner.attention import DENSE, AttentionKind
from services.trainer.learner.packing import Lane
from services.trainer.learner.sequences import Sequences, sequences_of


@dataclass(frozen=True, slots=True)
class Batch:
    """`predict_index_N` points into the B·L flattened positions."""

    token_ids_BL: Tensor
    position_ids_BL: Tensor
    implementation: str
    """The attention function that the model is to use."""
    arguments: dict[str, Any]
    """What the model's forward pass hands on to it: who sees whom."""
    predict_index_N: Tensor
    targets_N: Tensor
    behaviour_logprobs_N: Tensor
    advantages_N: Tensor
    temperatures_N: Tensor
    sequences: Sequences
    off_policy_N: Tensor | None
    """None where no lane is."""


def make_batch(lanes: Sequence[Lane], device: torch.device, kind: AttentionKind = DENSE) -> Batch:
    """Stack the lanes, or put them into one row, as `kind` wants them; their credited tokens one after another."""
    rows = [[lane] for lane in lanes] if kind.stacked else [list(lanes)]
    length = -(-max(sum(lane.length for lane in row) for row in rows) // kind.stride) * kind.stride

    def padded(values: list[list[int]]) -> Tensor:
        return torch.tensor([row + [0] * (length - len(row)) for row in values], device=device)

    def joined(values: list[list[float]]) -> Tensor:
        return torch.tensor([v for row in values for v in row], dtype=torch.float32, device=device)

    return Batch(
        token_ids_BL=padded([[token for lane in row for token in lane.token_ids] for row in rows]),
        position_ids_BL=padded([[at for lane in row for at in lane.position_ids] for row in rows]),
        implementation=kind.implementation,
        arguments=kind.arguments(lanes, length, device),
        predict_index_N=torch.tensor(_predict_at(rows, length), device=device),
        targets_N=torch.tensor([t for lane in lanes for t in lane.targets], device=device),
        behaviour_logprobs_N=joined([lane.behaviour_logprobs for lane in lanes]),
        advantages_N=joined([lane.advantages for lane in lanes]),
        temperatures_N=joined([lane.temperatures for lane in lanes]),
        sequences=sequences_of([length for lane in lanes for length in lane.sample_lengths], device),
        off_policy_N=_off_policy(lanes, device),
    )


def _predict_at(rows: Sequence[Sequence[Lane]], length: int) -> list[int]:
    """Of each credited token, where it is predicted in the flattened rows of `length` positions."""
    places = []
    for number, row in enumerate(rows):
        start = number * length
        for lane in row:
            places += [start + at for at in lane.predict_at]
            start += lane.length
    return places


def _off_policy(lanes: Sequence[Lane], device: torch.device) -> Tensor | None:
    if not any(lane.off_policy for lane in lanes):
        return None
    return torch.tensor([lane.off_policy for lane in lanes for _ in lane.targets], device=device)
