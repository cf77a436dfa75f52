"""Attention over a row of groups by FlexAttention: blocks of the row in which nobody sees anybody are skipped.

The block mask is made from which groups and samples each block of `BLOCK` tokens holds, so no L·L mask exists here
either. On CUDA transformers compiles the kernel. On CPU FlexAttention has no backward pass; the tests run it there
uncompiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers.integrations.flex_attention import flex_attention_forward

from services.trainer.learner.attention_function import no_mask, register
from services.trainer.learner.packing import PROMPT_SEGMENT, Lane

IMPLEMENTATION = "tabwise_flex"
BLOCK = 128
"""Tokens of a block, and what rows are padded to a multiple of."""
_PADDING_LANE = -1


def arguments(lanes: Sequence[Lane], length: int, device: torch.device) -> dict[str, Any]:
    """The block mask of a row of `length` positions, a multiple of `BLOCK`."""
    return {"attention_mask": no_mask(device), "blocks": block_mask(*row_ids(lanes, length, device))}


def row_ids(lanes: Sequence[Lane], length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each position of the row its lane and its segment, [L] each; padding is a lane that is all prompt."""
    padding = length - sum(lane.length for lane in lanes)
    lane_ids = [at for at, lane in enumerate(lanes) for _ in lane.segment_ids] + [_PADDING_LANE] * padding
    segments = [segment for lane in lanes for segment in lane.segment_ids] + [PROMPT_SEGMENT] * padding
    return torch.tensor(lane_ids, device=device), torch.tensor(segments, device=device)


def block_mask(lanes_L: Tensor, segments_L: Tensor) -> BlockMask:
    """Blocks that may see one another, and of these those that see one another whole and need no mask."""

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        own = (segments_L[key] == PROMPT_SEGMENT) | (segments_L[key] == segments_L[query])
        return (query >= key) & (lanes_L[query] == lanes_L[key]) & own

    some_QK, whole_QK = _visible_blocks(lanes_L, segments_L)
    partial, full = _in_order(some_QK & ~whole_QK), _in_order(whole_QK)
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(len(lanes_L), len(lanes_L))
    )


def _visible_blocks(lanes_L: Tensor, segments_L: Tensor) -> tuple[Tensor, Tensor]:
    """Boolean [blocks, blocks]: a token of the query's block may see one of the key's; each sees every one.

    Never too few of the first (blocks of one lane whose tokens just miss one another may be among them: `sees` decides
    there), never too many of the second.
    """
    prompt_L = segments_L == PROMPT_SEGMENT
    lane_B, said_B = _holds(lanes_L), _holds(_numbered(lanes_L, segments_L))
    prompt_B = _holds(torch.where(prompt_L, lanes_L, lanes_L.max() + 1), classes=lane_B.shape[1] + 1)[:, :-1]
    past = torch.ones(len(lane_B), len(lane_B), dtype=torch.bool, device=lanes_L.device).tril()
    some = ((lane_B @ prompt_B.T > 0) | (said_B @ said_B.T > 0)) & past
    one_lane = lane_B.sum(1, keepdim=True) == 1
    all_prompt = prompt_L.view(-1, BLOCK).all(1)
    whole = (lane_B @ lane_B.T > 0) & one_lane & one_lane.T & all_prompt & past.tril(-1)
    return some, whole


def _holds(ids_L: Tensor, classes: int = -1) -> Tensor:
    """[blocks, ids]: how many tokens of the block have the id; ids count from -1."""
    one_hot = nn.functional.one_hot(ids_L + 1, classes)
    return one_hot.view(-1, BLOCK, one_hot.shape[1]).sum(1).clamp(max=1).float()


def _numbered(lanes_L: Tensor, segments_L: Tensor) -> Tensor:
    """One id for each segment of each lane."""
    return torch.stack([lanes_L, segments_L]).unique(dim=1, return_inverse=True)[1]


def _in_order(chosen_QK: Tensor) -> tuple[Tensor, Tensor]:
    """As a `BlockMask` lists them: how many keys' blocks for each query's, and which, the chosen ones first."""
    order = chosen_QK.int().argsort(dim=1, descending=True, stable=True)
    return chosen_QK.sum(1).int()[None, None], order.int()[None, None]


def flex(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    blocks: BlockMask,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """transformers' attention function: query [1, H, L, D], key and value [1, H_kv, L, D] → [1, L, H, D]."""
    if query.is_cuda:
        result: tuple[Tensor, Tensor | None] = flex_attention_forward(
            module, query, key, value, blocks, scaling=scaling, **kwargs
        )
        return result
    output = flex_attention(query, key, value, block_mask=blocks, scale=scaling, enable_gqa=True)
    assert isinstance(output, Tensor)
    return output.transpose(1, 2).contiguous(), None


register(IMPLEMENTATION, "blocks", flex)
