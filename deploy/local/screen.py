"""What a person sees while the stack starts: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from deploy.local.stack import Progress


class StartScreen:
    """Takes `Progress` as a stack's listener; use as a context manager around the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, Progress] = {}
        self._began: dict[str, float] = {}
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show what happened."""
        self._rows[progress.part] = progress
        if progress.event == "starting":
            self._began[progress.part] = time.monotonic()
        if progress.event == "restarted":
            self._console.print(f"{progress.part} died and was started again")
        elif progress.event == "ready" and not self._console.is_terminal:
            self._console.print(f"{progress.part:<10} ready after {progress.seconds:.1f} s")

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for part, progress in self._rows.items():
            if progress.event in ("ready", "restarted"):
                table.add_row(Text("✓", "green"), part, Text(f"ready after {progress.seconds:.1f} s", "dim"))
            else:
                seconds = time.monotonic() - self._began[part]
                detail = f" ({progress.detail})" if progress.detail else ""
                table.add_row(self._spinner, part, Text(f"starting, {seconds:.0f} s{detail}", "dim"))
        return table
