"""The publisher's one task: look, close the gap, report. Commits happen below, in the rollout."""

from __future__ import annotations

from typing import Any

import structlog
from celery import Celery, Task

from services.publisher.runtime import Runtime
from shared.contracts.names import QUEUE_PUBLISHER, TASK_RECONCILE
from shared.kit.errors import SettingsError, TemporaryError

log = structlog.get_logger()


class PublisherTask(Task):  # type: ignore[misc]  # celery has no types
    """Logging context, metrics, and what an error means: the next tick looks again, so none is retried here."""

    ignore_result = True

    @property
    def runtime(self) -> Runtime:
        """What the worker opened at its start."""
        return self.app.runtime  # type: ignore[no-any-return]

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


def reconcile(self: PublisherTask) -> str:
    """Bring every replica to the wanted version. Returns the outcome."""
    return self.runtime.rollout.reconcile()


def register(app: Celery) -> None:
    """Give `app` the task, and a tick that is forgotten where the worker is busy."""
    app.task(reconcile, name=TASK_RECONCILE, base=PublisherTask, bind=True)
    tick_s = app.runtime.settings.publisher_tick_s
    app.conf.beat_schedule = {
        "tick": {
            "task": TASK_RECONCILE,
            "schedule": tick_s,
            "options": {"queue": QUEUE_PUBLISHER, "expires": 2 * tick_s},
        }
    }
