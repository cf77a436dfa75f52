"""How much of the device's matrix rate a step reaches: its matrix products, counted, over the rate, measured."""

from __future__ import annotations

import time

import torch

from benchmarks.learner.cases import SHAPES, Case


def needed_tflop(case: Case, positions: int, pairs: int, scored: int) -> float:
    """Of one step: forward, and twice that backward. What gradient checkpointing runs again is not counted.

    `positions` run through the layers, `pairs` of query and key that see each other, `scored` positions have logits.
    """
    shape = SHAPES[case.shape]
    width, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    head = width // shape["num_attention_heads"]
    kv = head * shape["num_key_value_heads"]
    per_position = 2 * width * width + 2 * width * kv + 3 * width * inner
    multiplied = layers * (positions * per_position + pairs * 2 * width) + scored * width * shape["vocab_size"]
    return float(3 * 2 * multiplied / 1e12)


def measured_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """The best of some products of two square matrices, 10¹² operations a second."""
    size = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = min(_seconds(a, b, device) for _ in range(6))
    return float(2 * size**3 / best / 1e12)


def _seconds(a: torch.Tensor, b: torch.Tensor, device: torch.device) -> float:
    started = time.perf_counter()
    a @ b
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
