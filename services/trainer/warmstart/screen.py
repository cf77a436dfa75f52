"""What a person sees: counts, example prompts, a progress bar with the time left, before and after."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from services.trainer.warmstart.filters import REASONS
from services.trainer.warmstart.samples import FimSample, Samples
from services.trainer.warmstart.state import Evaluated

_SHOWN_CHARS = 1200


class Screen:
    """The terminal during a run: one bar over all rounds, and a line for each evaluation."""

    def __init__(self, console: Console, rounds: int, done: int) -> None:
        self._console, self._rounds = console, rounds
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task("starting the learner", total=rounds, completed=done)
        self._began, self._began_at = time.monotonic(), done

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def round_done(self, number: int, figures: dict[str, float]) -> None:
        """See `run.Watcher`."""
        self._progress.update(self._task, completed=number, description=f"reward {figures['reward/mean']:.3f}")

    def evaluated(self, done: Evaluated) -> None:
        """See `run.Watcher`."""
        self._progress.update(self._task, description="training")
        figures, reward = done.figures, done.figures.get("reward/total_mean", 0.0)
        self._console.print(
            f"round {done.round} of {self._rounds}, held out: exact {_share(figures)}, "
            f"similarity {figures['similarity']:.3f}, reward {reward:.3f}{self._left(done)}",
            highlight=False,
        )

    def _left(self, done: Evaluated) -> str:
        """For a log file, which shows no bar."""
        rounds = done.round - self._began_at
        if self._console.is_terminal or rounds <= 0 or done.round >= self._rounds:
            return ""
        seconds = (time.monotonic() - self._began) / rounds * (self._rounds - done.round)
        return f"; about {seconds / 60:.0f} min left"


def show_counts(console: Console, samples: Samples) -> None:
    """What was read, and what was dropped and why."""
    table = Table(title="Samples", show_header=False)
    counts = samples.counts()
    for name in ("files_read", "files_train", "files_test", "samples_train", "samples_test"):
        table.add_row(name.replace("_", " "), str(counts[name]))
    for reason, count in samples.dropped_files.most_common():
        table.add_row(f"dropped: {reason}", f"{count}  [dim]{REASONS[reason]}[/dim]")
    for reason, count in samples.dropped_holes.most_common():
        table.add_row(f"holes dropped: {reason}", f"{count}  [dim]over training.max_completion_tokens[/dim]")
    for name in ("kinds_train", "languages_train"):
        table.add_row(name.replace("_", " "), _listed(counts[name]))
    console.print(table)


def show_examples(console: Console, samples: Sequence[FimSample]) -> None:
    """Prompts as the model gets them, with what really stands there."""
    for sample in samples:
        prompt = sample.prompt
        text = Text(prompt if len(prompt) <= _SHOWN_CHARS else f"… {prompt[-_SHOWN_CHARS:]}")
        text.append(sample.reference, style="bold reverse")
        console.print(Panel(text, title=f"{sample.path} · {sample.kind} · {sample.language}", title_align="left"))


def show_result(console: Console, before: Evaluated, after: Evaluated) -> None:
    """Held-out figures at the start and at the end."""
    table = Table(title=f"Held out: {before.figures['samples']:.0f} samples")
    for heading in ("", "before", f"after {after.round} rounds"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("exact", _share(before.figures), _share(after.figures))
    others = [n for n in after.figures if n not in ("samples", "exact", "exact_error") and not n.endswith("_share")]
    for name in others:
        table.add_row(name, *(f"{done.figures.get(name, float('nan')):.3f}" for done in (before, after)))
    console.print(table)


def _share(figures: Mapping[str, float]) -> str:
    return f"{figures['exact']:.3f} ± {figures['exact_error']:.3f}"


def _listed(counts: object) -> str:
    assert isinstance(counts, dict)
    return ", ".join(
        f"{count} {name or 'unknown'}" for name, count in sorted(counts.items(), key=lambda item: -item[1])
    )
