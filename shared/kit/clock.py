"""Time as a value that can be passed in, so that tests can move it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The current moment, timezone-aware."""
    return datetime.now(UTC)
