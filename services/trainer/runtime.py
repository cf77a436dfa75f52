"""Everything that the worker holds open while it runs, opened once and closed in reverse order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import structlog
from prometheus_client import CollectorRegistry, start_http_server

from services.trainer.claims import Claims
from services.trainer.learner_process import LearnerProcess
from services.trainer.metrics import TrainerMetrics
from services.trainer.rounds import Rounds
from services.trainer.settings import TrainerSettings
from services.trainer.siblings import SiblingSource
from services.trainer.stopping import Stopping
from shared.db.engine import make_engine
from shared.streams.redis import RedisStreams

log = structlog.get_logger()
_T = TypeVar("_T")


class Runtime:
    """One per worker process. `start` before the first round, `stop` after the last."""

    rounds: Rounds

    def __init__(self, settings: TrainerSettings, tell_publisher: Callable[[], None]) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        self.metrics = TrainerMetrics(self.registry)
        self.stopping = Stopping(settings.stop_grace_s)
        self._tell_publisher = tell_publisher
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to its end on the worker's one event loop."""
        return self._runner.run(work)

    def start(self) -> None:
        """Open everything and wait for the learner's model. Raises `LearnerDied`, `TemporaryError` or `OSError`."""
        Path(self.settings.checkpoint_root).mkdir(parents=True, exist_ok=True)
        self.run(self._start())
        log.info("trainer ready", engines=len(self.settings.engines), advantage=self.settings.advantage)

    def stop(self) -> None:
        """Close what was opened, the learner among it."""
        self.run(self._open.aclose())
        self._runner.close()

    async def _start(self) -> None:
        settings = self.settings
        server, _ = start_http_server(settings.trainer_metrics_port, settings.metrics_host, registry=self.registry)
        self._open.callback(server.server_close)
        self._open.callback(server.shutdown)
        database = make_engine(settings.database_url)
        self._open.callback(database.dispose)
        streams = RedisStreams.from_url(settings.redis_url)
        self._open.push_async_callback(streams.close)
        timeout = aiohttp.ClientTimeout(total=settings.sibling_timeout_s)
        session = await self._open.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        learner = make_learner(settings, self.metrics)
        self._open.callback(learner.stop)
        self.rounds = Rounds(
            settings=settings,
            database=database,
            claims=Claims(streams, settings, self.metrics),
            siblings=SiblingSource(session, settings, self.metrics),
            learner=learner,
            metrics=self.metrics,
            tell_publisher=self._tell_publisher,
            stopping=self.stopping,
            vocabulary=vocabulary_size(settings.model_path),
        )
        learner.start(self.stopping.requested)


def make_learner(settings: TrainerSettings, metrics: TrainerMetrics, log_file: Path | None = None) -> LearnerProcess:
    """Not started yet."""
    return LearnerProcess(
        settings.learner_config(),
        module=settings.learner_module,
        ranks=settings.learner_ranks,
        nodes=settings.learner_nodes(),
        startup_s=settings.learner_startup_s,
        timeout_s=settings.learner_timeout_s,
        on_start=metrics.learner_starts.inc,
        log_file=log_file,
    )


def vocabulary_size(model_path: str) -> int | None:
    """From the model folder's `config.json`; None for a repository name."""
    config = Path(model_path) / "config.json"
    if not config.is_file():
        return None
    size = json.loads(config.read_text()).get("vocab_size")
    return size if isinstance(size, int) else None
