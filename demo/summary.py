"""What is printed when a run is over: a table per policy version, what changed, and where everything lies."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from demo.ledger import Version
from demo.result import RunResult

_MOST_ROWS = 24


def print_summary(result: RunResult, console: Console) -> None:
    """The whole summary of one run."""
    console.print(version_table(result))
    for line in conclusions(result):
        console.print(line, highlight=False, soft_wrap=True)
    console.print()
    for what, where in whereabouts(result).items():
        console.print(f"{what:<14} {where}", highlight=False, soft_wrap=True)


def version_table(result: RunResult) -> Table:
    """One row per policy version."""
    table = Table(title=f"Policy versions, seed {result.seed}", title_justify="left", header_style="bold")
    for heading in ("version", "served", "shown", "accepted", "reward", "trained", "live after", "pause"):
        table.add_column(heading, justify="right")
    shown, left_out = _thinned(result.versions)
    for version in shown:
        table.add_row(*_row(version, result.team.started_at))
    if left_out:
        table.caption = f"{left_out} versions in between are left out"
    return table


def conclusions(result: RunResult) -> list[str]:
    """What the run says, in sentences."""
    first, last = result.reward_thirds
    delays = sorted(result.feedback_to_served_s)
    lines = [
        f"Reward per suggestion: {first:+.3f} in the first third, {last:+.3f} in the last third.",
        f"Fixed evaluation set ({result.before.moments} held-out moments, greedy): "
        f"acceptance {_percent(result.before.acceptance)} → {_percent(result.after.acceptance)}, "
        f"reward {result.before.mean_reward or 0:+.3f} → {result.after.mean_reward or 0:+.3f}.",
        f"Feedback: {result.team.events_sent} events sent, {result.end.events_stored} stored, "
        f"{result.end.events_resolved} resolved, {_percent(result.end.join_rate)} joined.",
        f"Experience: {result.end.experience_sent} handed over, "
        + ", ".join(f"{count} {name}" for name, count in sorted(result.dispositions.items(), reverse=True))
        + f", {result.duplicated} twice.",
        f"Completions that failed: {result.failed_completions}.",
    ]
    if delays:
        lines.append(
            f"From a feedback event to weights that contain it: {delays[len(delays) // 2]:.0f} s in the median."
        )
    return lines


def whereabouts(result: RunResult) -> dict[str, str]:
    """What a person may want to open next."""
    folder = result.folder
    return {
        "picture": str(folder / "learning.png"),
        "logs": str(folder / "logs"),
        "checkpoints": str(folder / "checkpoints"),
        "TensorBoard": f".venv/bin/tensorboard --logdir {folder / 'tensorboard'}",
    }


def _thinned(versions: list[Version]) -> tuple[list[Version], int]:
    """All of few; of many the first, the last, and some in between."""
    if len(versions) <= _MOST_ROWS:
        return versions, 0
    step = -(-len(versions) // _MOST_ROWS)
    kept = [version for index, version in enumerate(versions) if index % step == 0 or index == len(versions) - 1]
    return kept, len(versions) - len(kept)


def _row(version: Version, began: float) -> list[str]:
    return [
        "base" if version.version == 0 else f"v{version.version}",
        str(version.completions),
        str(version.suggestions),
        _percent(version.acceptance),
        "–" if version.reward is None else f"{version.reward:+.3f}",
        str(version.trained) if version.version else "–",
        "–" if version.published_at is None else f"{version.published_at.timestamp() - began:.0f} s",
        "–" if version.pause_s is None else f"{version.pause_s * 1000:.0f} ms",
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
