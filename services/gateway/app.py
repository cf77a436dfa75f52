"""The FastAPI app: what lives as long as the process, made in order and undone in reverse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from services.gateway.admission import Admission, ReleaseSlots
from services.gateway.completion import Parts
from services.gateway.emitter import Emitter
from services.gateway.forward import Forward
from services.gateway.metrics import GatewayMetrics
from services.gateway.openapi import install_openapi
from services.gateway.pool import DrainListener, Prober
from services.gateway.router import Health, Router, make_replicas
from services.gateway.routes import MODELS, Routes
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import Upstream
from shared.keys import KeyRing
from shared.kit.errors import TemporaryError
from shared.streams import RedisStreams, Streams
from shared.web.body_limit import BodyLimit
from shared.web.errors import install_error_handlers
from shared.web.probes import install_probes

_CANCELLED_S = 2.0


def create_app(settings: GatewaySettings, *, streams: Streams | None = None) -> FastAPI:
    """The gateway. `streams`: instead of Redis at `redis_url`. Raises `SettingsError` where no key is configured."""
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    keys = KeyRing.open(settings.api_keys, settings.keys_file, on_file_error=metrics.keys_file_errors.inc)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.parts = await _open(stack, settings, streams, metrics)
            yield
            app.state.stopping = True

    app = FastAPI(title="Tabwise gateway", lifespan=lifespan)
    app.state.stopping = False
    """Set by whoever stops the process: nothing new should be sent here."""

    def parts() -> Parts:
        opened: Parts = app.state.parts
        return opened

    async def ready() -> None:
        if app.state.stopping:
            raise TemporaryError("the gateway is stopping")
        await _any_replica(parts())

    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(ReleaseSlots)
    install_error_handlers(app)
    install_probes(app, registry, ready)
    app.include_router(Routes(parts, keys, Admission(settings, metrics)).router)
    install_openapi(app, MODELS)
    return app


async def _open(
    stack: AsyncExitStack, settings: GatewaySettings, streams: Streams | None, metrics: GatewayMetrics
) -> Parts:
    if streams is None:
        streams = RedisStreams.from_url(settings.redis_url)
        stack.push_async_callback(streams.close)
    emitter = Emitter(streams, settings, metrics)
    emitter.start()
    stack.push_async_callback(emitter.stop)
    upstream = Upstream.create(settings)
    stack.push_async_callback(upstream.close)
    forward = Forward.create(settings.engine_connect_timeout_s)
    stack.push_async_callback(forward.close)
    router = _router(settings)
    metrics.watch(router)
    if len(router.replicas) > 1:
        prober = Prober(router, upstream, metrics, settings.probe_interval_s)
        listener = DrainListener(router, settings.redis_url, metrics)
        for task in (prober, listener):
            task.start()
            stack.push_async_callback(task.stop)
    stack.push_async_callback(_let_end, router)
    return Parts(settings, upstream, router, emitter, metrics, forward)


def _router(settings: GatewaySettings) -> Router:
    return Router(
        make_replicas(settings.replicas),
        Health(settings.replica_failures, settings.replica_ejection_s, settings.replica_longest_ejection_s),
        affinity_slack=settings.replica_affinity_slack if settings.replica_affinity else None,
    )


async def _let_end(router: Router) -> None:
    """Completions that the server has cancelled record what they have, which the emitter must still be there for."""
    until_s = time.monotonic() + _CANCELLED_S
    while any(replica.in_flight for replica in router.replicas) and time.monotonic() < until_s:  # noqa: ASYNC110  # once per life
        await asyncio.sleep(0.01)


async def _any_replica(parts: Parts) -> None:
    """Redis is no part of being ready: completions flow without it."""
    asked = [asyncio.ensure_future(parts.upstream.healthy(replica.url)) for replica in parts.router.replicas]
    try:
        for answer in asyncio.as_completed(asked):
            if await answer:
                return
    finally:
        for task in asked:
            task.cancel()
    raise TemporaryError("no engine replica answers; see TABWISE_ENGINE_URLS")
