"""What a person sees while the developers work: a live panel on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clients.developer.report import TeamProgress
from demo.ledger import Snapshot
from demo.settings import DemoConfig

_BARS = "▁▂▃▄▅▆▇█"
_LINE_EVERY_S = 10.0
_POINTS = 60


class WorkScreen:
    """Fed with what the team and the ledger say; use as a context manager around the work."""

    def __init__(self, console: Console, config: DemoConfig) -> None:
        self._console = console
        self._config = config
        self._team: TeamProgress | None = None
        self._ledger: Snapshot | None = None
        self._curve: deque[float] = deque(maxlen=_POINTS)
        self._next_point = 0.0
        self._next_line = 0.0
        self._began = time.monotonic()
        self.phase = "the developers work"
        self._live = Live(console=console, get_renderable=self.panel, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def team(self, progress: TeamProgress) -> None:
        """What the developers did so far."""
        self._team = progress
        if progress.recent_acceptance is not None and progress.elapsed_s >= self._next_point:
            self._curve.append(progress.recent_acceptance)
            self._next_point = progress.elapsed_s + self._config.work_s / _POINTS
        self._maybe_line()

    def ledger(self, snapshot: Snapshot) -> None:
        """Where the loop stands."""
        self._ledger = snapshot
        self._maybe_line()

    def panel(self) -> Panel:
        """The live panel."""
        elapsed = time.monotonic() - self._began
        bar = ProgressBar(total=self._config.work_s, completed=min(elapsed, self._config.work_s), width=_POINTS)
        head = Text.assemble((f"{elapsed:4.0f} s  ", "dim"), (self.phase, "bold"))
        curve = Text.assemble(("acceptance, last 100 events  ", "dim"), (sparkline(list(self._curve)), "cyan"))
        title = f"Tabwise · seed {self._config.seed} · simulated team, generated house codebase"
        return Panel(
            Group(head, bar, Text(), self._figures(), Text(), curve), title=title, title_align="left", width=78
        )

    def line(self) -> str:
        """The same in one line."""
        return "  ".join(f"{name} {value}" for name, value in self._values().items())

    def _figures(self) -> Table:
        table = Table.grid(padding=(0, 3))
        items = list(self._values().items())
        for left, right in zip(items[0::2], items[1::2], strict=True):
            table.add_row(Text(left[0], "dim"), Text(left[1], "bold"), Text(right[0], "dim"), Text(right[1], "bold"))
        return table

    def _values(self) -> dict[str, str]:
        team, ledger = self._team, self._ledger
        rate = team.events_sent / team.elapsed_s if team and team.elapsed_s else 0.0
        recent = team.recent_acceptance if team else None
        return {
            "suggestions": str(team.shown if team else 0),
            "acceptance": "–" if recent is None else f"{recent:.0%}",
            "events": f"{team.events_sent if team else 0} ({rate:.1f}/s)",
            "failed": str(team.failed + team.events_failed if team else 0),
            "live": f"v{ledger.live_version}" if ledger and ledger.live_version else "base",
            "publishes": str(ledger.publishes if ledger else 0),
            "mini-batches": str(ledger.minibatches if ledger else 0),
            "trained": str(ledger.experience_trained if ledger else 0),
        }

    def _maybe_line(self) -> None:
        now = time.monotonic()
        if not self._console.is_terminal and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_S
            self._console.print(f"{now - self._began:4.0f} s  {self.line()}", highlight=False, soft_wrap=True)


def sparkline(values: list[float]) -> str:
    """Values between 0 and their maximum as bars."""
    top = max(values, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] for value in values)
