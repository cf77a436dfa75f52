"""How an attention kind becomes one of transformers' attention functions.

A model keeps the function once it is set, so each also serves forward passes that know nothing of packing: these run
plain SDPA, with the mask that transformers makes for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def register(implementation: str, packing: str, attend: Callable[..., tuple[Tensor, Any]]) -> None:
    """`attend` under the name `implementation`, for forward passes that have the keyword argument `packing`."""

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        function = attend if packing in kwargs else sdpa_attention_forward
        return function(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register(implementation, attention)
    AttentionMaskInterface.register(implementation, sdpa_mask)


def no_mask(device: torch.device) -> Tensor:
    """Empty, and in the shape of a mask that is ready: it keeps transformers from making one, and nobody reads it."""
    return torch.empty(1, 1, 0, 0, dtype=torch.bool, device=device)
