"""Attention over a row of groups without a mask of the row: each group is two calls of SDPA.

Its prompt attends to itself, causally (`is_causal`, no mask). Its samples attend to prompt and samples under a mask
that knows whose token is whose: [M, P + M] for M tokens of samples behind a prompt of P, made once for all layers.
Samples are taken in runs of at most `RUN` tokens, since a run is scored in full although a sample sees itself only.
Cost: P²/2 + M·(P + RUN/2) scores, against (P + M)² with a dense mask. Works on every device that SDPA works on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv

from services.trainer.learner.attention_function import no_mask, register
from services.trainer.learner.packing import Lane

IMPLEMENTATION = "tabwise_prefix"
RUN = 512
"""Tokens of samples that are scored against one another at a time."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole samples of one group, one behind the other."""

    start: int
    """Position of its first token in the lane."""
    mask_MK: Tensor
    """[M, P + M], true where a query sees a key: all of the prompt, and what its own sample said before."""


@dataclass(frozen=True, slots=True)
class Span:
    """One group within the row, in order of position."""

    prompt: int
    """P, tokens."""
    runs: tuple[Run, ...]

    @property
    def pieces(self) -> list[int]:
        """Tokens of the prompt and of each run."""
        return [self.prompt, *(len(run.mask_MK) for run in self.runs)]


def arguments(lanes: Sequence[Lane], length: int, device: torch.device) -> dict[str, Any]:
    """Spans of all lanes."""
    return {"attention_mask": no_mask(device), "spans": tuple(span_of(lane, device) for lane in lanes)}


def span_of(lane: Lane, device: torch.device) -> Span:
    """Where prompt and samples lie."""
    prompt = lane.prompt_length
    own = lane.segment_ids[prompt:]
    starts = _run_starts(own)
    ends = [*starts, len(own)][1:]
    return Span(
        prompt, tuple(Run(prompt + a, _run_mask(own[a:b], prompt, device)) for a, b in zip(starts, ends, strict=True))
    )


def _run_starts(own: Sequence[int]) -> list[int]:
    """First tokens of runs: as many whole samples as fit into `RUN`, at least one."""
    ends = [at + 1 for at in range(len(own)) if own[at : at + 1] != own[at + 1 : at + 2]]
    starts: list[int] = []
    for first, end in zip([0, *ends], ends, strict=False):
        if not starts or end - starts[-1] > RUN:
            starts.append(first)
    return starts


def _run_mask(own: Sequence[int], prompt: int, device: torch.device) -> Tensor:
    segments_M = torch.tensor(own, device=device)
    same_MM = (segments_M.unsqueeze(1) == segments_M).tril()
    return torch.cat([same_MM.new_ones(len(own), prompt), same_MM], dim=1)


def prefix_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    spans: Sequence[Span],
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: query [1, H, L, D], key and value [1, H_kv, L, D] → [1, L, H, D].

    Positions behind the last span are padding and get zeros.
    """
    sizes = [sum(span.pieces) for span in spans]
    sizes.append(query.shape[2] - sum(sizes))
    queries, keys, values = (t.split(sizes, dim=2)[:-1] for t in (query, key, value))
    pieces = [
        piece
        for span, own_query, own_key, own_value in zip(spans, queries, keys, values, strict=True)
        for piece in _group(span, own_query, own_key, own_value, scaling)
    ]
    padding = query.new_zeros(1, sizes[-1], query.shape[1], value.shape[3])
    return torch.cat([*(piece.transpose(1, 2) for piece in pieces), padding], dim=1), None


def _group(span: Span, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> list[Tensor]:
    """Outputs [1, H, ·, D] of the prompt and of each run."""
    prompt, *queries = query.split(span.pieces, dim=2)
    outputs = [_attend(prompt, key[:, :, : span.prompt], value[:, :, : span.prompt], None, scaling)]
    for run, own in zip(span.runs, queries, strict=True):
        keys, values = (_seen_by(run, span.prompt, lane) for lane in (key, value))
        outputs.append(_attend(own, keys, values, run.mask_MK, scaling))
    return outputs


def _seen_by(run: Run, prompt: int, lane: Tensor) -> Tensor:
    """The prompt and the run, [1, H_kv, P + M, D]; without copying where they are neighbours."""
    end = run.start + len(run.mask_MK)
    if run.start == prompt:
        return lane[:, :, :end]
    return torch.cat([lane[:, :, :prompt], lane[:, :, run.start : end]], dim=2)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """SDPA; causal where there is no mask. CUDA's masked kernels know no grouped heads: there keys are repeated."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and mask is not None and query.device.type != "cpu":
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=groups > 1
    )


register(IMPLEMENTATION, "spans", prefix_attention)
