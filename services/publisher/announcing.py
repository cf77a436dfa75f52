"""Tells the gateways which replica is about to be held, so that users' requests go to another one meanwhile.

Out: `ReplicaNotice`s over Redis. A hint, not a lock: while Redis is away nothing is said, the failure is counted, and
the publish goes on; requests to a held replica wait there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from services.publisher.metrics import PublisherMetrics
from shared.contracts.replicas import CHANNEL_REPLICAS, ReplicaNotice, draining_key, normal_url
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()
_TIMEOUT_S = 0.5


class Announcer(Protocol):
    """Says that a replica drains, and that it serves again."""

    @contextmanager
    def draining(self, url: str) -> Iterator[None]:
        """The replica gets no new requests inside the block, as far as that can be had. Never raises of its own."""
        ...


class NoAnnouncer:
    """For a single replica: its requests have nowhere else to go."""

    @contextmanager
    def draining(self, url: str) -> Iterator[None]:
        """Says nothing."""
        yield


class RedisAnnouncer:
    """Over the Redis at `redis_url`; connects when there is something to say. `longest_s`: a notice that nobody took
    back (the publisher died) counts no longer."""

    def __init__(self, redis_url: str, metrics: PublisherMetrics, *, longest_s: float, clock: Clock = utc_now) -> None:
        self._redis = Redis.from_url(
            redis_url, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._metrics = metrics
        self._longest = timedelta(seconds=longest_s)
        self._clock = clock

    @contextmanager
    def draining(self, url: str) -> Iterator[None]:
        """Serving again is said whatever happened inside."""
        url = normal_url(url)
        self._say(ReplicaNotice(url=url, state="draining", until=self._clock() + self._longest))
        try:
            yield
        finally:
            self._say(ReplicaNotice(url=url, state="serving", until=self._clock()))

    def close(self) -> None:
        """Give back the connection."""
        self._redis.close()

    def _say(self, notice: ReplicaNotice) -> None:
        payload = notice.model_dump_json().encode()
        try:
            with self._redis.pipeline(transaction=True) as pipe:
                if notice.state == "draining":
                    pipe.set(draining_key(notice.url), payload, px=self._longest)
                else:
                    pipe.delete(draining_key(notice.url))
                pipe.publish(CHANNEL_REPLICAS, payload)
                pipe.execute()
        except (RedisError, OSError) as error:
            self._metrics.announcements.labels(state=notice.state, result="failed").inc()
            log.warning("replica notice not sent", state=notice.state, error=type(error).__name__)
        else:
            self._metrics.announcements.labels(state=notice.state, result="sent").inc()
