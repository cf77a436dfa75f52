"""What the gateways hear while a version is published, over a real Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis import Redis

from deploy.local.embedded import free_port
from services.publisher.announcing import NoAnnouncer, RedisAnnouncer
from services.publisher.metrics import PublisherMetrics
from services.publisher.rollout import Rollout
from services.publisher.runtime import Runtime
from shared.contracts.replicas import CHANNEL_REPLICAS, ReplicaNotice, draining_key
from tests.fakes.engine import FakeEngine
from tests.integration.publisher.conftest import Bench


@pytest.fixture
def second() -> Iterator[FakeEngine]:
    with FakeEngine() as engine:
        yield engine


def announced(bench: Bench, second: FakeEngine, redis_url: str) -> Rollout:
    """A publisher of two replicas that tells `redis_url`."""
    settings = bench.settings.model_copy(update={"engine_urls": f"{bench.engine.url},{second.url}/"})
    announcer = RedisAnnouncer(redis_url, bench.metrics, longest_s=settings.longest_drain_s)
    rollout = Rollout(
        settings=settings,
        database=bench.database,
        store=bench.store,
        metrics=bench.metrics,
        announcer=announcer,
        clock=lambda: bench.now,
    )
    bench._rollout = rollout
    return rollout


def heard(client: Redis, work: Rollout) -> list[tuple[str, str]]:
    """What is said while it looks once."""
    channel: Any = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    with channel:
        channel.subscribe(CHANNEL_REPLICAS)
        while not channel.subscribed or channel.get_message(timeout=0.2) is not None:
            pass
        work.reconcile()
        notices: list[tuple[str, str]] = []
        while (message := channel.get_message(timeout=0.3)) is not None:
            notice = ReplicaNotice.model_validate_json(message["data"])
            notices.append((notice.state, notice.url))
        return notices


def test_one_replica_after_the_other(bench: Bench, second: FakeEngine, clean_redis: str) -> None:
    bench.commit(1)
    with Redis.from_url(clean_redis) as client:
        notices = heard(client, announced(bench, second, clean_redis))
        assert client.keys("tabwise:draining:*") == []

    first_url, second_url = bench.engine.url, second.url
    assert notices == [
        ("draining", first_url),
        ("serving", first_url),
        ("draining", second_url),
        ("serving", second_url),
    ]
    assert bench.serves(1)
    assert bench.serves(1, second)


def test_a_failed_load_ends_in_serving_too(bench: Bench, second: FakeEngine, clean_redis: str) -> None:
    bench.commit(1)
    bench.engine.faults.reload_status = 500
    with Redis.from_url(clean_redis) as client:
        notices = heard(client, announced(bench, second, clean_redis))
        assert client.keys("tabwise:draining:*") == []

    assert notices[:2] == [("draining", bench.engine.url), ("serving", bench.engine.url)]


def test_the_key_is_there_as_long_as_the_replica_is_held_and_expires(clean_redis: str) -> None:
    metrics = PublisherMetrics(CollectorRegistry())
    announcer = RedisAnnouncer(clean_redis, metrics, longest_s=30)
    with Redis.from_url(clean_redis) as client, announcer.draining("http://a:1/"):
        notice = ReplicaNotice.model_validate_json(client.get(draining_key("http://a:1")) or b"")
        assert (notice.url, notice.state) == ("http://a:1", "draining")
        assert 25_000 < client.pttl(draining_key("http://a:1")) <= 30_000
    with Redis.from_url(clean_redis) as client:
        assert not client.exists(draining_key("http://a:1"))
    announcer.close()


def test_a_publish_does_not_wait_for_redis(bench: Bench, second: FakeEngine) -> None:
    bench.commit(1)
    began = time.monotonic()
    assert announced(bench, second, f"redis://127.0.0.1:{free_port()}/0").reconcile() == "published"

    assert time.monotonic() - began < 10
    assert bench.serves(1, second)
    assert bench.figure("announcements_total", state="draining", result="failed") == 2
    assert bench.figure("announcements_total", state="serving", result="failed") == 2


def test_a_single_replica_needs_no_announcement(bench: Bench) -> None:
    assert isinstance(Runtime(bench.settings)._announcer(), NoAnnouncer)
    several = bench.settings.model_copy(update={"engine_urls": "http://a:1,http://b:1"})
    runtime = Runtime(several)
    assert isinstance(runtime._announcer(), RedisAnnouncer)
    runtime.stop()
