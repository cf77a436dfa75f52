"""The trainer's one task, and the base class that every task here has.

A task is one unit of work: open, call, close. Commits happen below, in the round.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery import Celery, Task

from services.trainer.learner_process import RoundAbandoned
from services.trainer.runtime import Runtime
from shared.contracts.names import QUEUE_TRAINER, TASK_TRAIN_ROUND
from shared.kit.errors import SettingsError, TemporaryError

log = structlog.get_logger()


class TrainerTask(Task):  # type: ignore[misc]  # celery has no types
    """Logging context, metrics, and what an error means: the next tick tries again, so none is retried here."""

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
            except RoundAbandoned as error:
                log.info("round abandoned", reason=str(error))
                outcome = "abandoned"
            except (TemporaryError, SettingsError) as error:
                log.warning("tick failed", kind=type(error).__name__, reason=str(error))
                outcome = "failed"
            except Exception:
                tasks.labels(outcome="failed").inc()
                raise
            tasks.labels(outcome=outcome).inc()
            return outcome


def train_round(self: TrainerTask) -> str:
    """Claim, train and commit one round if there is enough experience. Returns the outcome."""
    return self.runtime.run(self.runtime.rounds.tick())


def register(app: Celery) -> None:
    """Give `app` the trainer's tasks, and a tick that is forgotten where the worker is busy."""
    app.task(train_round, name=TASK_TRAIN_ROUND, base=TrainerTask, bind=True)
    tick_s = app.runtime.settings.trainer_tick_s
    app.conf.beat_schedule = {
        "tick": {
            "task": TASK_TRAIN_ROUND,
            "schedule": tick_s,
            "options": {"queue": QUEUE_TRAINER, "expires": 2 * tick_s},
        }
    }
