"""The picture of a run: acceptance rate and reward against feedback, the publishes marked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from demo.result import RunResult

_WINDOW_SHARE = 8
_LABEL_DISTANCE = 0.04
_INK, _FAINT = "#1f2933", "#9aa5b1"
_ACCEPTANCE, _REWARD = "#2f6fb0", "#2b8a5a"


def draw(result: RunResult, path: Path) -> None:
    """Write the picture as PNG."""
    figure = Figure(figsize=(9, 6), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    window = window_of(len(result.verdicts))
    top.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _curve(top, [float(verdict.accepted) for verdict in result.verdicts], window, _ACCEPTANCE, "{:.1%}")
    _curve(bottom, [verdict.reward for verdict in result.verdicts], window, _REWARD, "{:+.3f}")
    top.set_ylabel("acceptance rate", color=_INK)
    bottom.set_ylabel("mean reward", color=_INK)
    bottom.set_xlabel(f"suggestions with feedback (curve: mean of the last {window}; lines: thirds)", color=_INK)
    _mark_publishes((top, bottom), publish_positions(result))
    figure.suptitle(_title(result), x=0.01, ha="left", color=_INK, fontsize=11)
    figure.savefig(path)


def window_of(count: int) -> int:
    """Length of the rolling mean: an eighth of the run, 20 at least."""
    return max(20, count // _WINDOW_SHARE)


def rolling(values: Sequence[float], window: int) -> list[float]:
    """Mean of the last `window` values, from the first full window on; entry 0 belongs to value `window - 1`."""
    sums = [0.0, *accumulate(values)]
    return [(sums[end] - sums[end - window]) / window for end in range(window, len(sums))]


def publish_positions(result: RunResult) -> list[tuple[int, int]]:
    """(suggestions with feedback before it, version) of each version's first publish."""
    times = [verdict.at for verdict in result.verdicts]
    first: dict[int, int] = {}
    for publish in result.publishes:
        first.setdefault(publish.version, bisect_right(times, publish.finished_at))
    return [(position, version) for version, position in first.items()]


def _curve(axes: Axes, values: Sequence[float], window: int, colour: str, form: str) -> None:
    means = rolling(values, window)
    axes.plot(range(window, window + len(means)), means, color=colour, linewidth=1.8)
    _mark_thirds(axes, values, colour, form)
    axes.set_xlim(0, max(len(values), 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(colors=_INK)
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)


def _mark_thirds(axes: Axes, values: Sequence[float], colour: str, form: str) -> None:
    """The mean of the first and of the last third as thin lines with their value."""
    third = len(values) // 3
    if not third:
        return
    for start, part in ((0, values[:third]), (len(values) - third, values[-third:])):
        mean = fmean(part)
        axes.hlines(mean, start, start + third, color=colour, linewidth=1, alpha=0.55)
        axes.annotate(
            form.format(mean),
            (start, mean),
            xytext=(4, 3),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
        )


def _mark_publishes(panels: Sequence[Axes], positions: Sequence[tuple[int, int]]) -> None:
    width = max((position for position, _ in positions), default=0)
    labelled = -width
    for position, version in positions:
        for axes in panels:
            axes.axvline(position, color=_FAINT, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
        if position - labelled >= width * _LABEL_DISTANCE:
            labelled = position
            panels[0].annotate(
                f"v{version}",
                (position, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=_FAINT,
            )


def _title(result: RunResult) -> str:
    before, after = result.before.mean_reward or 0, result.after.mean_reward or 0
    return (
        f"Simulated team of {result.team.developers}, generated house codebase, seed {result.seed}; "
        f"dotted: a new policy is published\n"
        f"Reward on {result.before.moments} fixed held-out moments: {before:+.3f} before, {after:+.3f} after"
    )
