"""What the simulated developers typed and were shown, by the ledger, and the logs in which it must not stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from demo.ledger import Snapshot
from deploy.local.stack import Stack

LOOK_EVERY = 20
SHORTEST_LINE = 24
NOT_AS_TYPED = frozenset("\"'\\<>")
"""Lines with these look different in JSON, or hold the template's own tokens."""
NEWEST = "SELECT prompt || text FROM generations ORDER BY created_at DESC LIMIT 40"
PATHS = "SELECT DISTINCT filepath FROM feedback_events WHERE filepath <> ''"


@dataclass
class Typed:
    """Called about once a second with the running stack; looks every `LOOK_EVERY` calls."""

    lines: set[str] = field(default_factory=set)
    _calls: int = field(default=0, init=False)

    def __call__(self, stack: Stack, _: Snapshot) -> None:
        self._calls += 1
        if self._calls % LOOK_EVERY == 0:
            self.look(stack.config.database_url)

    def look(self, database_url: str) -> None:
        """Remember lines of code and paths of files."""
        with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
            self.lines |= code_lines(text for (text,) in connection.execute(NEWEST))
            self.lines |= {path for (path,) in connection.execute(PATHS)}


def code_lines(texts: Iterable[str]) -> set[str]:
    """Lines that are long enough to be nobody else's, as they would look in a log."""
    stripped = {line.strip() for text in texts for line in text.splitlines()}
    return {line for line in stripped if len(line) >= SHORTEST_LINE and not NOT_AS_TYPED & set(line)}


def leaks(lines: Iterable[str], logs: Path) -> dict[str, list[str]]:
    """By log file, which of the lines stand in it."""
    known = list(lines)
    written = {file.name: file.read_text(errors="replace") for file in sorted(logs.iterdir()) if file.is_file()}
    found = {name: [line for line in known if line in text] for name, text in written.items()}
    return {name: lines for name, lines in found.items() if lines}
