"""Puts ingest together: the HTTP app, its loops, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.answers import CountAnswers
from services.ingest.door import Door
from services.ingest.gauges import Gauges
from services.ingest.guard import Guard
from services.ingest.intake_queries import InsertEvents
from services.ingest.joiner import Joiner
from services.ingest.metrics import IngestMetrics
from services.ingest.partitions import Partitions
from services.ingest.recorder import Recorder
from services.ingest.relay import Relay
from services.ingest.repository import Repository
from services.ingest.resending import Resending
from services.ingest.resolver import Resolver
from services.ingest.retention import Retention
from services.ingest.routes import FEEDBACK_ROUTES, Ingest, event_endpoints, make_router
from services.ingest.routes_feedback import FEEDBACK, feedback_endpoint, make_feedback_router
from services.ingest.routes_figures import make_figures_router
from services.ingest.settings import IngestSettings
from services.ingest.settling import Settling
from services.ingest.worker import Loop, is_temporary, run_all
from services.ingest.writer import EventWriter
from shared.db.engine import async_sessions, make_async_engine
from shared.keys import KeyRing
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import TemporaryError
from shared.streams import RedisStreams, Streams
from shared.web.body_limit import BodyLimit
from shared.web.errors import install_error_handlers
from shared.web.probes import install_probes

GAUGES_EVERY_S = 2.0
PRUNE_EVERY_S = 60.0
RESENDING_EVERY_S = 1.0
RETENTION_EVERY_S = 60.0
PARTITIONS_EVERY_S = 600.0
READY_TIMEOUT_S = 2.0


def create_app(settings: IngestSettings, *, clock: Clock = utc_now) -> FastAPI:
    """The whole service. Raises `SettingsError` where no key is configured; connects to nothing yet."""
    metrics = IngestMetrics(CollectorRegistry())
    engine = make_async_engine(settings.database_url)
    sessions = async_sessions(engine)
    streams = RedisStreams.from_url(settings.redis_url)
    loops = make_loops(settings, sessions, streams, metrics, clock)
    writer = EventWriter(
        InsertEvents(engine),
        max_waiting=settings.ingest_max_waiting,
        max_batch=settings.ingest_max_commit,
        timeout_s=settings.ingest_commit_timeout_s,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(run_all(loops, metrics))
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await writer.close()
            await streams.close()
            await engine.dispose()

    app = FastAPI(title="Tabwise ingest", lifespan=lifespan)
    app.state.metrics, app.state.engine = metrics, engine
    install_error_handlers(app)
    keys = KeyRing.open(settings.api_keys, settings.keys_file, on_file_error=metrics.keys_file_errors.inc)
    ingest = Ingest(settings, keys, sessions, metrics, clock, writer)
    endpoints = event_endpoints(ingest) | {FEEDBACK: feedback_endpoint(ingest)}
    app.include_router(make_router(ingest, endpoints))
    app.include_router(make_feedback_router(endpoints[FEEDBACK]))
    app.include_router(make_figures_router(ingest))
    install_probes(app, metrics.registry, lambda: check_ledger(sessions))
    app.add_middleware(Door, endpoints=endpoints)
    app.add_middleware(BodyLimit, max_bytes=settings.ingest_max_body_bytes)
    app.add_middleware(CountAnswers, metrics=metrics, routes=FEEDBACK_ROUTES | {FEEDBACK})
    return app


def make_loops(
    settings: IngestSettings,
    sessions: async_sessionmaker[AsyncSession],
    streams: Streams,
    metrics: IngestMetrics,
    clock: Clock,
) -> list[Loop]:
    """The loops that the settings ask for."""
    loops = [Loop("gauges", Gauges(sessions, streams, metrics).step, GAUGES_EVERY_S)]
    if settings.run_recorder:
        loops.append(Loop("recorder", Recorder(settings, sessions, streams, metrics).step, 0))
        loops.append(Loop("partitions", Partitions(sessions, clock).step, PARTITIONS_EVERY_S))
    if settings.run_joiner:
        joiner = Joiner(settings, sessions, streams, metrics, clock)
        loops.append(Loop("joiner", joiner.step, settings.poll_interval_s))
    if settings.run_resolver:
        resolver = Resolver(settings, sessions, metrics, clock)
        loops.append(Loop("resolver_accepted", resolver.step_accepted, settings.poll_interval_s))
        loops.append(Loop("resolver_rejected", resolver.step_rejected, settings.settle_poll_interval_s))
        loops.append(Loop("resolver_settled", resolver.step_settled, settings.settle_poll_interval_s))
        loops.append(Loop("guard", Guard(settings, sessions, metrics, clock).step, settings.quarantine_every_s))
    if settings.run_retention:
        loops.append(Loop("retention", Retention(settings, sessions, metrics, clock).step, RETENTION_EVERY_S))
    if settings.run_settling:
        settling = Settling(settings, sessions, metrics, clock)
        loops.append(Loop("settling", settling.step, settings.settling_poll_interval_s))
    if settings.run_relay:
        relay = Relay(settings, sessions, streams, metrics, clock)
        loops.append(Loop("relay", relay.step, settings.poll_interval_s))
        loops.append(Loop("resending", Resending(sessions, streams, metrics).step, RESENDING_EVERY_S))
        loops.append(Loop("prune", relay.prune, PRUNE_EVERY_S))
    return loops


async def check_ledger(sessions: async_sessionmaker[AsyncSession]) -> None:
    """Raises `TemporaryError` while PostgreSQL cannot be asked."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S), sessions() as session:
            await Repository(session).check()
    except Exception as error:
        if not is_temporary(error):
            raise
        raise TemporaryError(f"PostgreSQL: {type(error).__name__}") from error
