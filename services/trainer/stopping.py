"""That the worker was told to stop, as a value that long waits can look at."""

from __future__ import annotations

import time


class Stopping:
    """Set from a signal handler: no locks, no logging."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._deadline_s: float | None = None

    def request(self) -> None:
        """Stop; a round that is being learned has `grace_s` left."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._grace_s

    def requested(self) -> bool:
        """Whether nothing new should begin."""
        return self._deadline_s is not None

    def overdue(self) -> bool:
        """Whether what runs should be abandoned."""
        return self._deadline_s is not None and time.monotonic() > self._deadline_s
