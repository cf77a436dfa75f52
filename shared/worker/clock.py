"""Celery beat as a thread of the worker, not `--beat`, whose process outlives a killed worker and keeps ticking."""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.beat import EmbeddedService


class ClockStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Its schedule is in memory. A subclass says in `requires` what must be open before the first tick."""

    def __init__(self, worker: Any, **_: Any) -> None:
        self._clock: Any = None

    def start(self, worker: Any) -> None:
        """Begin to tick."""
        self._clock = EmbeddedService(worker.app, thread=True, scheduler_cls="celery.beat:Scheduler")
        self._clock.start()

    def stop(self, worker: Any) -> None:
        """Waits for the thread, a second at most."""
        if self._clock is not None:
            self._clock.stop()
