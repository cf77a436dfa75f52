"""The Celery application of the publisher: one process that holds worker, clock and metrics server.

    python -m services.publisher                 # checks the settings, then the same as:
    celery -A services.publisher.celery_app worker --pool solo --queues publisher \\
           --without-gossip --without-mingle --without-heartbeat

The clock (Celery beat) is a thread of the worker rather than `--beat`, whose process outlives a killed worker and keeps
ticking. A second worker does no harm: only one at a time reconciles (advisory lock).
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from celery import Celery, bootsteps, signals

from services.publisher import tasks
from services.publisher.runtime import Runtime
from services.publisher.settings import PublisherSettings
from shared.contracts.names import QUEUE_PUBLISHER
from shared.kit.errors import SettingsError
from shared.kit.logging import configure_logging
from shared.worker.clock import ClockStep


def create_celery(settings: PublisherSettings) -> Celery:
    """The application with its task, tick and worker steps; opens nothing."""
    app = Celery("tabwise-publisher", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE_PUBLISHER,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"socket_connect_timeout": 3, "socket_keepalive": True},
        timezone="UTC",
    )
    app.runtime = Runtime(settings)
    tasks.register(app)
    app.steps["worker"].update({RuntimeStep, Clock})
    _connect_signals(settings)
    return app


class RuntimeStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Opens what the task needs before the worker takes any, closes it after the last one."""

    requires = ("celery.worker.components:Pool",)

    def start(self, worker: Any) -> None:
        """Exit with one sentence where it cannot work."""
        try:
            worker.app.runtime.start()
        except (SettingsError, OSError) as error:
            print(f"publisher: {_start_sentence(error)}", file=sys.stderr)
            raise SystemExit(1) from None

    def stop(self, worker: Any) -> None:
        """Also after a failed start."""
        worker.app.runtime.stop()


class Clock(ClockStep):
    """Ticks while the runtime is open."""

    requires = (RuntimeStep,)


def _start_sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: change TABWISE_PUBLISHER_METRICS_PORT or TABWISE_METRICS_HOST"
    return str(error)


def _connect_signals(settings: PublisherSettings) -> None:
    def _logging(**_: Any) -> None:
        configure_logging("publisher", settings.log_level, settings.log_format)
        logging.getLogger("httpx").setLevel(logging.WARNING)
        if settings.log_level != "DEBUG":
            logging.getLogger("celery").setLevel(logging.WARNING)  # a line per tick otherwise

    signals.setup_logging.connect(_logging, weak=False)


def __getattr__(name: str) -> Any:
    """`app`, for the `celery` command: made when it is asked for, so that importing this module does no work."""
    if name == "app":
        globals()["app"] = create_celery(PublisherSettings.load())
        return globals()["app"]
    raise AttributeError(name)
