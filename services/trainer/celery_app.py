"""The Celery application of the trainer: one process that holds worker, clock, metrics server and the learner's line.

    python -m services.trainer                   # checks the settings, then the same as:
    celery -A services.trainer.celery_app worker --pool solo --queues trainer \\
           --without-gossip --without-mingle --without-heartbeat

The solo pool runs a task in the worker's own process, where the learner's connection is. The clock (Celery beat) is a
thread of it rather than `--beat`, whose process outlives a killed worker and keeps ticking. Run one worker per
database: a second one waits (advisory lock).
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any

import structlog
from celery import Celery, bootsteps, signals
from kombu.exceptions import OperationalError

from services.trainer import tasks
from services.trainer.learner_process import RoundAbandoned
from services.trainer.runtime import Runtime
from services.trainer.settings import TrainerSettings
from shared.contracts.names import QUEUE_PUBLISHER, QUEUE_TRAINER, TASK_RECONCILE
from shared.kit.errors import TabwiseError
from shared.kit.logging import configure_logging
from shared.worker.clock import ClockStep

log = structlog.get_logger()


def create_celery(settings: TrainerSettings) -> Celery:
    """The application with its task, tick and worker steps; opens nothing."""
    app = Celery("tabwise-trainer", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE_TRAINER,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"socket_connect_timeout": 3, "socket_keepalive": True},
        timezone="UTC",
    )
    app.runtime = Runtime(settings, lambda: tell_publisher(app))
    tasks.register(app)
    app.steps["worker"].update({RuntimeStep, Clock})
    _connect_signals(app)
    return app


def run_worker(settings: TrainerSettings) -> int:
    """Work until SIGTERM; returns the exit status. (`worker_main` would lose it.)"""
    worker = create_celery(settings).Worker(
        pool="solo",
        queues=[QUEUE_TRAINER],
        hostname=f"trainer@{socket.gethostname()}",
        loglevel=settings.log_level,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def tell_publisher(app: Celery) -> None:
    """Enqueue the publisher's reconciliation. It also ticks by itself, so a broker that is away costs seconds only."""
    try:
        app.send_task(TASK_RECONCILE, queue=QUEUE_PUBLISHER, retry=False, expires=60)
    except (OperationalError, OSError) as error:
        log.warning("publisher not told", error=type(error).__name__)


class RuntimeStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Opens what the rounds need before the worker takes tasks, closes it after the last one."""

    requires = ("celery.worker.components:Pool",)

    def start(self, worker: Any) -> None:
        """Exit with one sentence where it cannot work."""
        runtime: Runtime = worker.app.runtime
        try:
            runtime.start()
        except RoundAbandoned:
            raise SystemExit(0) from None
        except (TabwiseError, OSError) as error:
            print(f"trainer: {_start_sentence(runtime.settings, error)}", file=sys.stderr)
            raise SystemExit(1) from None

    def stop(self, worker: Any) -> None:
        """Also after a failed start."""
        worker.app.runtime.stop()


class Clock(ClockStep):
    """Ticks while the runtime is open."""

    requires = (RuntimeStep,)


def _start_sentence(settings: TrainerSettings, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: change TABWISE_TRAINER_METRICS_PORT or TABWISE_METRICS_HOST"
    return f"{error} (TABWISE_MODEL_PATH={settings.model_path})"


def _connect_signals(app: Celery) -> None:
    settings: TrainerSettings = app.runtime.settings

    def _logging(**_: Any) -> None:
        configure_logging("trainer", settings.log_level, settings.log_format)
        if settings.log_level != "DEBUG":
            logging.getLogger("celery").setLevel(logging.WARNING)  # a line per tick otherwise

    def _stop(**_: Any) -> None:
        app.runtime.stopping.request()

    signals.setup_logging.connect(_logging, weak=False)
    signals.worker_shutting_down.connect(_stop, weak=False)


def __getattr__(name: str) -> Any:
    """`app`, for the `celery` command: made when it is asked for, so that importing this module does no work."""
    if name == "app":
        globals()["app"] = create_celery(TrainerSettings.load())
        return globals()["app"]
    raise AttributeError(name)
