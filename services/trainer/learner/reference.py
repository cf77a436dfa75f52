"""The reference policy that the KL term holds on to: the base model, never trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from services.trainer.learner.batch import Batch
from services.trainer.learner.model import PackedPolicy


class Reference(Protocol):
    """Whatever knows the reference's logprobs."""

    def logprobs(self, batch: Batch) -> Tensor:
        """[N], natural logs at the sampling temperature, without a gradient. Every rank calls it equally often."""


class FrozenCopy:
    """A second copy of the base model's weights, whole on every rank."""

    def __init__(self, policy: PackedPolicy, device: torch.device) -> None:
        self._policy = policy.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def logprobs(self, batch: Batch) -> Tensor:
        """See `Reference.logprobs`."""
        result: Tensor = self._policy(batch)
        return result


class AdapterOff:
    """The policy itself with its adapter disabled: no second copy of the weights."""

    def __init__(self, base_logprobs: Callable[[Batch], Tensor]) -> None:
        self.logprobs = base_logprobs
        """See `Reference.logprobs`."""
