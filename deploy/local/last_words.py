"""What a part said last: the one line of its log that tells an operator why it ended."""

from __future__ import annotations

import json
from pathlib import Path

_TAIL_BYTES = 20_000
_SETTING = "TABWISE_"
_EMBEDDED = ("FATAL:", "# ")
"""How PostgreSQL and Redis mark the line that matters."""


def size(log: Path) -> int:
    """Bytes in the log now: where the words of the next run begin."""
    return log.stat().st_size if log.exists() else 0


def last_words(log: Path, since: int = 0) -> str:
    """After byte `since`: the latest line that names a setting, else that of an embedded server's failure, else the
    last line; empty where nothing was said."""
    lines = _tail(log, since)
    named = [line for line in lines if _SETTING in line]
    fatal = [line for line in lines if any(mark in line for mark in _EMBEDDED)]
    return _plain((named or fatal or lines or [""])[-1])


def _tail(log: Path, since: int) -> list[str]:
    end = size(log)
    if end == 0:
        return []
    start = since if since <= end else 0  # it was rotated
    with log.open("rb") as file:
        file.seek(max(start, end - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _plain(line: str) -> str:
    """A structured line as words: its event and its error."""
    if not line.startswith("{"):
        return line
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return line
    return ": ".join(str(record[name]) for name in ("event", "error", "reason") if record.get(name))
