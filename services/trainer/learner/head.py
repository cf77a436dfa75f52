"""From hidden states to the logprob of one token each, without the logits of all of them at once.

Logits are made chunk by chunk in one fp32 buffer, once for the values and once more for the gradients; between the two
only one number per token is kept, its log-sum-exp. So neither N·V logits nor a second copy of a chunk ever exist, and
the head's weight has one gradient that chunks add to. V vocabulary, D width, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

LOGITS_PER_CHUNK = 16 * 1024 * 1024
"""Logits held at a time (64 MB in fp32). A Qwen vocabulary gives chunks of 110 tokens."""


def head_logprobs(head: nn.Module, hidden_ND: Tensor, targets_N: Tensor, temperatures_N: Tensor, vocab: int) -> Tensor:
    """log softmax(head(hidden) / temperature)[target] of each token, [N], fp32.

    A plain linear head runs as one function of its weight. Any other (of another class, or with a weight that
    ZeRO 3 gathers when the module is called) is called as a module, chunk by chunk, and again for the gradients.
    """
    size = max(1, LOGITS_PER_CHUNK // vocab)
    if type(head) is nn.Linear and not hasattr(head.weight, "ds_id"):
        result: Tensor = _Linear.apply(hidden_ND, head.weight, head.bias, targets_N, temperatures_N, size)
        return result
    whole = len(targets_N) <= size
    chunks = [(hidden_ND[at], targets_N[at], temperatures_N[at]) for at in _chunks(len(targets_N), size)]
    return torch.cat([_module_chunk(head, *chunk, whole) for chunk in chunks])


def _module_chunk(head: nn.Module, hidden_ND: Tensor, targets_N: Tensor, temperatures_N: Tensor, whole: bool) -> Tensor:
    def run(hidden_ND: Tensor) -> Tensor:
        logits_NV = head(hidden_ND).float() / temperatures_N.unsqueeze(1)
        return logits_NV.gather(1, targets_N.unsqueeze(1)).squeeze(1) - logits_NV.logsumexp(1)

    if whole or not torch.is_grad_enabled():
        return run(hidden_ND)
    chunk: Tensor = checkpoint(run, hidden_ND, use_reentrant=False)
    return chunk


class _Linear(torch.autograd.Function):
    """`head_logprobs` of weight [V, D] and bias [V] or None. Gradient of a logit: (1[v = y] - p_v) / temperature."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None,
        targets_N: Tensor, temperatures_N: Tensor, size: int,
    ) -> Tensor:  # fmt: skip
        chosen_N, total_N = (torch.empty_like(targets_N, dtype=torch.float32) for _ in range(2))
        for at in _chunks(len(targets_N), size):
            logits_NV = _logits(hidden_ND[at], weight_VD, bias_V, temperatures_N[at])
            chosen_N[at] = logits_NV.gather(1, targets_N[at].unsqueeze(1)).squeeze(1)
            most_N1 = logits_NV.amax(1, keepdim=True)
            total_N[at] = logits_NV.sub_(most_N1).exp_().sum(1).log_() + most_N1.squeeze(1)
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, total_N)
        ctx.size = size
        return chosen_N - total_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, total_N = ctx.saved_tensors
        scale_N1 = (grads[0] / temperatures_N).unsqueeze(1)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        grad_bias_V = torch.zeros_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        for at in _chunks(len(targets_N), ctx.size):
            grad_NV = _logits(hidden_ND[at], weight_VD, bias_V, temperatures_N[at])
            grad_NV.sub_(total_N[at].unsqueeze(1)).exp_().mul_(-scale_N1[at])
            grad_NV.scatter_add_(1, targets_N[at].unsqueeze(1), scale_N1[at])
            given_NV = grad_NV.to(hidden_ND.dtype)
            torch.mm(given_NV, weight_VD, out=grad_hidden_ND[at])
            if grad_weight_VD is not None:
                grad_weight_VD.addmm_(given_NV.T, hidden_ND[at])
            if grad_bias_V is not None:
                grad_bias_V += given_NV.sum(0)
        return grad_hidden_ND, grad_weight_VD, grad_bias_V, None, None, None


def _chunks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _logits(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperatures_N: Tensor) -> Tensor:
    """At the temperature, fp32, in a buffer of their own."""
    return linear(hidden_ND, weight_VD, bias_V).float().div_(temperatures_N.unsqueeze(1))
