"""The two background tasks that know of a replica's state before a user meets it.

`Prober` asks every replica's `/health`; `DrainListener` hears from the publisher which replica is about to be held.
Both only tell the router, and both may be away: then failures of requests are all that the router goes by.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from services.gateway.metrics import GatewayMetrics
from services.gateway.router import Replica, Router
from services.gateway.upstream import Upstream
from shared.contracts.replicas import CHANNEL_REPLICAS, ReplicaNotice, draining_key, normal_url

log = structlog.get_logger()
_LONGEST_DRAIN_S = 600.0
_RECONNECT_S = 1.0
_REDIS_TIMEOUT_S = 2.0
_LOOK_S = 5.0
"""How often a quiet Redis is asked whether it is there."""


class Background:
    """A task between `start()` and `stop()`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self.run(), name=self._name)

    async def stop(self) -> None:
        """End at once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def run(self) -> Coroutine[Any, Any, None]:
        """What it does; never returns."""
        raise NotImplementedError


class Prober(Background):
    """Asks all replicas at once, every `interval_s`."""

    def __init__(self, router: Router, upstream: Upstream, metrics: GatewayMetrics, interval_s: float) -> None:
        super().__init__("prober")
        self._router = router
        self._upstream = upstream
        self._metrics = metrics
        self._interval_s = interval_s

    async def run(self) -> None:
        while True:
            await asyncio.gather(*(self._probe(replica) for replica in self._router.replicas))
            await asyncio.sleep(self._interval_s)

    async def _probe(self, replica: Replica) -> None:
        well = await self._upstream.healthy(replica.url)
        self._metrics.probes.labels(replica.name, "well" if well else "ill").inc()
        was_gone = replica.gone
        if self._router.probed(replica, well):
            self._metrics.ejections.labels(replica.name, "probe").inc()
            log.warning("replica ejected", replica=replica.name, kind="probe")
        elif was_gone and not replica.gone:
            log.info("replica is back", replica=replica.name)


class DrainListener(Background):
    """Subscribed to the publisher's notices; while Redis is away nothing drains."""

    def __init__(self, router: Router, redis_url: str, metrics: GatewayMetrics) -> None:
        super().__init__("drain-listener")
        self._router = router
        self._redis_url = redis_url
        self._metrics = metrics

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                self._router.nothing_drains()
                self._metrics.drain_listener.set(0)
                log.warning("publishes are not heard of", error=type(error).__name__)
                await asyncio.sleep(_RECONNECT_S)

    async def _listen(self) -> None:
        async with (
            Redis.from_url(
                self._redis_url,
                socket_connect_timeout=_REDIS_TIMEOUT_S,
                socket_timeout=2 * _LOOK_S,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),  # a silent reconnection would hide what was said meanwhile
                protocol=2,
            ) as client,
            client.pubsub(ignore_subscribe_messages=True) as channel,
        ):
            await channel.subscribe(CHANNEL_REPLICAS)
            await channel.get_message(timeout=_REDIS_TIMEOUT_S)  # confirmed: from here on nothing is missed
            for payload in await client.mget([draining_key(replica.url) for replica in self._router.replicas]):
                self._hear(payload)
            self._metrics.drain_listener.set(1)
            while True:
                message = await channel.get_message(timeout=_LOOK_S)
                if message is None:
                    await client.ping()
                else:
                    self._hear(message["data"])

    def _hear(self, payload: bytes | str | None) -> None:
        if payload is None:
            return
        try:
            notice = ReplicaNotice.model_validate_json(payload)
        except ValidationError as error:
            log.error("a notice about a replica was not understood", errors=error.error_count())
            return
        for_s = (notice.until - datetime.now(UTC)).total_seconds() if notice.state == "draining" else 0.0
        self._router.drain(normal_url(notice.url), min(for_s, _LONGEST_DRAIN_S))
        log.info("replica notice", replica=notice.url.split("://", 1)[-1], state=notice.state)
