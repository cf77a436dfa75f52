"""The FastAPI app: what lives as long as the process, made in order and undone in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from services.gateway.completion import Parts
from services.gateway.emitter import Emitter
from services.gateway.metrics import GatewayMetrics
from services.gateway.router import Router
from services.gateway.routes import Routes
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import Upstream
from shared.keys import KeyRing
from shared.kit.errors import TemporaryError
from shared.streams import RedisStreams, Streams
from shared.web.body_limit import BodyLimit
from shared.web.errors import install_error_handlers
from shared.web.probes import install_probes


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

    app = FastAPI(title="Tabwise gateway", lifespan=lifespan)

    def parts() -> Parts:
        opened: Parts = app.state.parts
        return opened

    async def ready() -> None:
        await _any_replica(parts())

    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    install_error_handlers(app)
    install_probes(app, registry, ready)
    app.include_router(Routes(parts, keys).router)
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
    router = Router(settings.replicas, settings.replica_cooldown_s)
    return Parts(settings, upstream, router, emitter, metrics)


async def _any_replica(parts: Parts) -> None:
    """Redis is no part of being ready: completions flow without it."""
    for replica in parts.router.replicas:
        if await parts.upstream.healthy(replica.url):
            return
    raise TemporaryError("no engine replica answers; see TABWISE_ENGINE_URLS")
