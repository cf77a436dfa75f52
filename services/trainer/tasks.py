"""The trainer's one task: a round, if there is enough to learn from. Commits happen below, in the round."""

from __future__ import annotations

import structlog
from celery import Celery

from services.trainer.learner_process import RoundAbandoned
from services.trainer.runtime import Runtime
from shared.contracts.names import QUEUE_TRAINER, TASK_TRAIN_ROUND
from shared.worker.ticking import TickingTask, tick_every

log = structlog.get_logger()


def train_round(self: TickingTask) -> str:
    """Claim, train and commit one round if there is enough experience. Returns the outcome."""
    runtime: Runtime = self.runtime
    try:
        return runtime.run(runtime.rounds.tick())
    except RoundAbandoned as error:
        log.info("round abandoned", reason=str(error))
        return "abandoned"


def register(app: Celery) -> None:
    """Give `app` the task and its clock."""
    app.task(train_round, name=TASK_TRAIN_ROUND, base=TickingTask, bind=True)
    tick_every(app, TASK_TRAIN_ROUND, QUEUE_TRAINER, app.runtime.settings.trainer_tick_s)
