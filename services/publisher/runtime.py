"""Everything that the worker holds open while it runs, opened once and closed in reverse order."""

from __future__ import annotations

from contextlib import ExitStack

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from services.publisher.announcing import Announcer, NoAnnouncer, RedisAnnouncer
from services.publisher.metrics import PublisherMetrics
from services.publisher.rollout import Rollout
from services.publisher.settings import PublisherSettings
from shared.db.engine import make_engine
from shared.storage import CheckpointStore, open_store

log = structlog.get_logger()


class Runtime:
    """One per worker process. `start` before the first task, `stop` after the last."""

    rollout: Rollout

    def __init__(self, settings: PublisherSettings) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        self.metrics = PublisherMetrics(self.registry)
        self._open = ExitStack()

    def start(self) -> None:
        """Open everything. Raises `SettingsError` or `OSError` (the metrics port)."""
        settings = self.settings
        store = CheckpointStore(open_store(settings.storage))
        server, _ = start_http_server(settings.publisher_metrics_port, settings.metrics_host, registry=self.registry)
        self._open.callback(server.server_close)
        self._open.callback(server.shutdown)
        database = make_engine(settings.database_url)
        self._open.callback(database.dispose)
        self.rollout = Rollout(
            settings=settings, database=database, store=store, metrics=self.metrics, announcer=self._announcer()
        )
        log.info("publisher ready", engines=len(settings.engines))

    def _announcer(self) -> Announcer:
        if len(self.settings.engines) < 2:
            return NoAnnouncer()
        announcer = RedisAnnouncer(self.settings.redis_url, self.metrics, longest_s=self.settings.longest_drain_s)
        self._open.callback(announcer.close)
        return announcer

    def stop(self) -> None:
        """Close what was opened."""
        self._open.close()
