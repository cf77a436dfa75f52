"""Forward passes of sampling: each prompt runs once, and all of its members read the same keys and values.

In: the model in memory and B prompts. Out: logits of the next token, of the prompts first, then of each member's newest
token. A row of the cache is `[padding | prompt | members' tokens as they come]`, the layout that training packs
(`packing`): segment ids say whose a position is, and a query sees the prompt and its own member. So the prompt's keys
are held once, not once per member, and any attention that takes a mask will do. The price: a query is also scored
against the other members' tokens, which for completions of a line or two are few beside the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from services.trainer.learner.packing import PROMPT_SEGMENT

_PADDING_SEGMENT = -1
FILLER = -1
"""The member of an input slot that nobody needs."""


@contextmanager
def sampling_mode(model: PreTrainedModel) -> Iterator[None]:
    """No gradient, no dropout, plain SDPA whatever training uses; afterwards everything is as it was."""
    training, attention = model.training, model.config._attn_implementation
    model.eval()
    model.config._attn_implementation = "sdpa"
    try:
        with torch.no_grad():
            yield
    finally:
        model.config._attn_implementation = attention
        model.train(training)


class SharedPrompts:
    """The cache of B prompts and of what their members have said. Use it within `sampling_mode`."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], device: torch.device) -> None:
        self._model, self._device = model, device
        self._cache = DynamicCache()
        self._prompts = prompts
        self._segments_BL = torch.empty(len(prompts), 0, dtype=torch.long, device=device)
        self._lengths_B = torch.tensor([len(prompt) for prompt in prompts], device=device)

    def prefill(self) -> Tensor:
        """Run the prompts, padded on the left. Logits [B, V] of the token after each."""
        length = max(map(len, self._prompts))
        tokens_BL = self._tensor([[0] * (length - len(prompt)) + list(prompt) for prompt in self._prompts])
        at_L = torch.arange(length, device=self._device)
        positions_BL = at_L - (length - self._lengths_B).unsqueeze(1)
        self._segments_BL = torch.where(positions_BL < 0, _PADDING_SEGMENT, PROMPT_SEGMENT)
        causal_LL = torch.ones(length, length, dtype=torch.bool, device=self._device).tril()
        mask_B1LL = self._visible(self._segments_BL) & causal_LL
        return self._run(tokens_BL, positions_BL.clamp(min=0), mask_B1LL, last=True)[:, -1]

    def step(self, tokens_BM: list[list[int]], members_BM: list[list[int]], said: int) -> Tensor:
        """Run one more token of M members of each row; `said` tokens of theirs ran before. Logits [B, M, V].

        Members count from 0; `FILLER` marks a slot without one, whose logits mean nothing.
        """
        members = self._tensor(members_BM)
        segments_BM = torch.where(members == FILLER, _PADDING_SEGMENT, members + 1)
        self._segments_BL = torch.cat([self._segments_BL, segments_BM], dim=1)
        positions_BM = (self._lengths_B + said).unsqueeze(1).expand_as(members)
        return self._run(self._tensor(tokens_BM), positions_BM, self._visible(segments_BM), last=False)

    def keep(self, rows: Sequence[int]) -> None:
        """Forget all rows but these."""
        index = self._tensor(list(rows))
        self._cache.batch_select_indices(index)
        self._segments_BL, self._lengths_B = self._segments_BL[index], self._lengths_B[index]

    def _visible(self, queries_BM: Tensor) -> Tensor:
        """Boolean [B, 1, M, L]. Padding sees padding, so that no row of the softmax is empty."""
        query_BM1, key_B1L = queries_BM.unsqueeze(2), self._segments_BL.unsqueeze(1)
        seen_BML = (key_B1L == query_BM1) | ((key_B1L == PROMPT_SEGMENT) & (query_BM1 != _PADDING_SEGMENT))
        return seen_BML.unsqueeze(1)

    def _run(self, tokens_BM: Tensor, positions_BM: Tensor, mask_B1ML: Tensor, *, last: bool) -> Tensor:
        logits: Tensor = self._model(
            input_ids=tokens_BM,
            attention_mask=mask_B1ML,
            position_ids=positions_BM,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=int(last),
        ).logits
        return logits

    def _tensor(self, values: list[list[int]] | list[int]) -> Tensor:
        return torch.tensor(values, device=self._device)
