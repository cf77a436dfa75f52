"""From the measurements of both sides to lines of JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.learner.cases import Case, Measured

TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}
"""Relative, of what both sides must have computed alike."""


class Different(Exception):
    """The sides did not train the same: their speeds cannot be compared."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Every process of one case."""

    ours: list[Measured]
    trl: list[Measured]


def check_same(case: Case, sides: Sides) -> str:
    """What both sides found, in a sentence; raises `Different` where it is not the same."""
    one, other = sides.ours[0], sides.trl[0]
    pairs = {
        name: (getattr(one, name), getattr(other, name)) for name in ("loss", "grad_norm", "logprob", "logprob_last")
    }
    for name, (mine, theirs) in pairs.items():
        if abs(mine - theirs) > TOLERANCE[case.dtype] * max(1.0, abs(theirs)):
            raise Different(f"{name} is {mine} on our side and {theirs} on TRL's, with {case}")
    return ", ".join(f"{name} {mine:.6f} = {theirs:.6f}" for name, (mine, theirs) in pairs.items())


def lines(case: Case, sides: Sides) -> list[dict[str, Any]]:
    """One line a figure. Speeds from the median step of all processes, memory from the median process."""
    ours, trl = _speed(sides.ours), _speed(sides.trl)
    peaks = [median(one.peak_memory_mb for one in side) for side in (sides.ours, sides.trl)]
    shares = [
        median(one.tflop / one.matrix_tflops for one in side) * speed
        for side, speed in ((sides.ours, ours), (sides.trl, trl))
    ]
    device = sides.ours[0].device
    return [
        _line("samples_per_s", case, device, case.samples * ours, case.samples * trl),
        _line("tokens_per_s", case, device, case.tokens * ours, case.tokens * trl),
        _line("peak_memory_mb", case, device, *peaks),
        _line("matrix_rate_share", case, device, *shares),
    ]


def _speed(side: Sequence[Measured]) -> float:
    """Optimiser steps per second."""
    return 1 / median(seconds for one in side for seconds in one.seconds)


def _line(figure: str, case: Case, device: str, ours: float, trl: float) -> dict[str, Any]:
    """`ratio`: ours over TRL's."""
    return {
        "bench": "learner",
        "figure": figure + ("_checkpointed" if case.checkpointing else ""),
        "device": device,
        "prompt": case.prompt,
        "completion": case.completion,
        "group": case.group,
        "ours": _short(ours),
        "trl": _short(trl),
        "ratio": _short(ours / trl),
    }


def _short(value: float) -> float:
    """Four digits that mean something."""
    return float(f"{value:.4g}")
