"""A tracker in a thread of its own, behind a bounded queue: whatever becomes of it, training goes on at its pace.

What could not be handed over is counted, and said once. A tracker that cannot be opened is tried again later.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import structlog

from services.trainer.learner.errors import one_line
from services.trainer.learner.tracking.tracker import Open, Run, Tracker

log = structlog.get_logger()

QUEUED = 1000
"""Entries that may wait; a step makes one, a round another."""
RETRY_S = 30.0


class _Entry(NamedTuple):
    figures: Mapping[str, float]
    step: int


class Background:
    """One tracker."""

    def __init__(self, name: str, opener: Open, run: Run, *, queued: int = QUEUED, retry_s: float = RETRY_S) -> None:
        self._name, self._opener, self._run, self._retry_s = name, opener, run, retry_s
        self._waiting: queue.Queue[_Entry | None] = queue.Queue(queued)
        self._lock = threading.Lock()
        self._lost = 0
        self._complained = False
        self._ending = threading.Event()
        self._tracker: Tracker | None = None
        self._retry_at_s = 0.0
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def put(self, figures: Mapping[str, float], step: int) -> None:
        """Returns at once."""
        try:
            self._waiting.put_nowait(_Entry(figures, step))
        except queue.Full:
            self._lose("it does not keep up")

    def take_lost(self) -> int:
        """Entries lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    def end(self) -> None:
        """Nothing more will come: hand over what waits, and close. Returns at once."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)  # wake it

    def join(self, within_s: float) -> None:
        """Wait for that, not longer."""
        self._thread.join(max(0.0, within_s))

    def _work(self) -> None:
        while not (self._ending.is_set() and self._waiting.empty()):
            if (entry := self._waiting.get()) is not None:
                self._hand_over(entry)
        if self._tracker is not None:
            try:
                self._tracker.close()
            except Exception as error:
                self._lose(_reason(error), entries=0)

    def _hand_over(self, entry: _Entry) -> None:
        if self._tracker is None and time.monotonic() < self._retry_at_s:
            self._lose("it could not be opened")
            return
        try:
            if self._tracker is None:
                self._tracker = self._opener(self._run)
            self._tracker.log(entry.figures, entry.step)
        except Exception as error:
            self._retry_at_s = time.monotonic() + self._retry_s
            self._lose(_reason(error))
        else:
            self._complained = False

    def _lose(self, reason: str, entries: int = 1) -> None:
        with self._lock:
            self._lost += entries
            complained, self._complained = self._complained, True
        if not complained:
            log.warning("tracker failed, training goes on", tracker=self._name, reason=reason)


def _reason(error: Exception) -> str:
    """One line, without a password that a URL may hold."""
    return re.sub(r"//[^/@\s]*@", "//***@", one_line(error))
