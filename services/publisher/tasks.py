"""The publisher's one task: look, close the gap, report. Commits happen below, in the rollout."""

from __future__ import annotations

from celery import Celery

from services.publisher.runtime import Runtime
from shared.contracts.names import QUEUE_PUBLISHER, TASK_RECONCILE
from shared.worker.ticking import TickingTask, tick_every


def reconcile(self: TickingTask) -> str:
    """Bring every replica to the wanted version. Returns the outcome."""
    runtime: Runtime = self.runtime
    return runtime.rollout.reconcile()


def register(app: Celery) -> None:
    """Give `app` the task and its clock."""
    app.task(reconcile, name=TASK_RECONCILE, base=TickingTask, bind=True)
    tick_every(app, TASK_RECONCILE, QUEUE_PUBLISHER, app.runtime.settings.publisher_tick_s)
