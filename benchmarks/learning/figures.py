"""Bands over seeds, gains and their ratio. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from benchmarks.learning.algorithms import family
from benchmarks.learning.results import Result

Decoding = Literal["greedy", "sampled"]
CURVES = ("reward", "acceptance", "acceptance_of_shown", "suggestion_rate", "exact", "mean_chars", "mean_tokens")
HEADLINE: Decoding = "greedy"
"""The gain is that of the policy's best guess: the same decoding for an algorithm that serves at 0.1 and for one that
serves at 0.5, and what `clients.developer.evaluation` and the demo report."""
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
"""Student's t, 97.5 %, for 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Band:
    """Mean over seeds and its 95 % confidence interval (Student's t); of fewer than three seeds none."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Band:
        """Needs one value at least."""
        mean, count = fmean(values), len(values)
        if count < 3:
            return cls(mean, None, None)
        half = _t(count - 1) * stdev(values) / math.sqrt(count)
        return cls(mean, mean - half, mean + half)

    def as_dict(self) -> dict[str, float | None]:
        """Rounded for a line of JSON."""
        return {"mean": rounded(self.mean), "low": rounded(self.low), "high": rounded(self.high)}


def gain(result: Result, decoding: Decoding, name: str = "reward") -> float:
    """After the budget minus before."""
    first, last = (getattr(result.points[at], decoding)[name] for at in (0, -1))
    return float(last - first)


def curves(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """A line for each algorithm, decoding, figure and number of events."""
    lines = []
    for algorithm, runs in results.items():
        for at, point in enumerate(runs[0].points):
            head = {"bench": "learning", "algorithm": algorithm, "events": point.events, "seeds": len(runs)}
            for decoding in ("greedy", "sampled"):
                for name in CURVES:
                    band = Band.of([getattr(run.points[at], decoding)[name] for run in runs])
                    lines.append(head | {"figure": name, "decoding": decoding} | band.as_dict())
            kl = Band.of([run.points[at].kl for run in runs])
            lines.append(head | {"figure": "kl_nats_per_token"} | kl.as_dict())
    return lines


def gains(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """A line for each algorithm and decoding."""
    return [
        {"bench": "learning", "figure": "gain", "algorithm": algorithm, "decoding": decoding, "of": name}
        | Band.of([gain(run, decoding, name) for run in runs]).as_dict()
        | {"each": [rounded(gain(run, decoding, name)) for run in runs], "seeds": len(runs)}
        for algorithm, runs in results.items()
        for decoding in _DECODINGS
        for name in ("reward", "acceptance")
    ]


def best(results: Mapping[str, Sequence[Result]], name: str, decoding: Decoding) -> str | None:
    """Of an algorithm that was run at several learning rates the one with the largest mean gain."""
    rivals = [key for key in results if family(key) == name]
    return max(rivals, key=lambda key: fmean(gain(run, decoding) for run in results[key]), default=None)


def ratio(results: Mapping[str, Sequence[Result]], decoding: Decoding, figure: str) -> dict[str, Any] | None:
    """Ours beside raw at its best rate; None where either was not run. `ratio` is None unless raw gained."""
    ours_key, raw_key = best(results, "ours", decoding), best(results, "raw", decoding)
    if ours_key is None or raw_key is None:
        return None
    ours, raw = ([gain(run, decoding) for run in results[key]] for key in (ours_key, raw_key))
    quotient = fmean(ours) / fmean(raw) if fmean(raw) > 0 else None
    paired = [a - b for a, b in zip(ours, raw, strict=False)]
    return {
        "bench": "learning",
        "figure": figure,
        "ours": rounded(fmean(ours)),
        "raw": rounded(fmean(raw)),
        "ratio": rounded(quotient),
        "difference": Band.of(paired).as_dict(),
        "algorithms": [ours_key, raw_key],
        "decoding": decoding,
        "seeds": min(len(ours), len(raw)),
    }


def rounded(value: float | None) -> float | None:
    """Four digits are more than the noise leaves."""
    return None if value is None else round(value, 4)


def _t(freedom: int) -> float:
    return _T_975[freedom - 1] if freedom <= len(_T_975) else 1.96


_DECODINGS: tuple[Decoding, ...] = ("greedy", "sampled")
