"""Tasks that a clock repeats: look, do what there is to do, report. None is retried: the next tick looks again."""

from __future__ import annotations

from typing import Any

import structlog
from celery import Celery, Task

from shared.kit.errors import SettingsError, TemporaryError

log = structlog.get_logger()


class TickingTask(Task):  # type: ignore[misc]  # celery has no types
    """Logging context, metrics, and what an error means. What it returns is the outcome that is counted."""

    ignore_result = True

    @property
    def runtime(self) -> Any:
        """What the worker opened at its start; its `metrics.tasks` counts by outcome."""
        return self.app.runtime

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tasks = self.runtime.metrics.tasks
        with structlog.contextvars.bound_contextvars(task=self.name, task_id=self.request.id):
            try:
                outcome = self.run(*args, **kwargs)
            except (TemporaryError, SettingsError) as error:
                log.warning("tick failed", kind=type(error).__name__, reason=str(error))
                outcome = "failed"
            except Exception:
                tasks.labels(outcome="failed").inc()
                raise
            tasks.labels(outcome=outcome).inc()
            return outcome


def tick_every(app: Celery, task: str, queue: str, seconds: float) -> None:
    """Have the clock send `task`; a tick is forgotten where the worker is still busy two ticks later."""
    app.conf.beat_schedule = {
        "tick": {"task": task, "schedule": seconds, "options": {"queue": queue, "expires": 2 * seconds}}
    }
