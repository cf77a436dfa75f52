"""Reward and acceptance against events, with bands, as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.learning.algorithms import ALGORITHMS, family
from benchmarks.learning.figures import Band
from benchmarks.learning.results import Result

_COLOURS = {"ours": "#0b6e4f", "tracker": "#3a6ea5", "reinforce_pp": "#b07d2b", "raw": "#a23b3b"}
_STYLES = ("-", "--", ":", "-.")
_PANELS = (
    ("reward", "greedy", "reward, greedy"),
    ("reward", "sampled", "reward, temperature 0.5"),
    ("acceptance", "greedy", "acceptance, greedy"),
    ("acceptance", "sampled", "acceptance, temperature 0.5"),
)


def draw(results: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write the picture."""
    mpl.use("Agg")
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), sharex=True, layout="constrained")
    for panel, (name, decoding, title) in zip(axes.flat, _PANELS, strict=True):
        _panel(panel, results, name, decoding)
        panel.set_title(title, fontsize=11)
    for panel in axes[1]:
        panel.set_xlabel("feedback events")
    figure.suptitle(
        "Held-out set of the house codebase after so many events: mean over seeds, 95 % confidence", fontsize=12
    )
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(panel: Axes, results: Mapping[str, Sequence[Result]], name: str, decoding: str) -> None:
    for algorithm, runs in results.items():
        events = [point.events for point in runs[0].points]
        bands = [Band.of([getattr(run.points[i], decoding)[name] for run in runs]) for i in range(len(events))]
        colour = _COLOURS[family(algorithm)]
        style = _STYLES[[key for key in results if family(key) == family(algorithm)].index(algorithm) % len(_STYLES)]
        seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
        label = f"{algorithm} ({seeds}): {ALGORITHMS[family(algorithm)].about}"
        panel.plot(events, [band.mean for band in bands], style, color=colour, marker="o", ms=3, label=label)
        low = [band.mean if band.low is None else band.low for band in bands]
        high = [band.mean if band.high is None else band.high for band in bands]
        panel.fill_between(events, low, high, color=colour, alpha=0.15, lw=0)
    panel.grid(alpha=0.25)
