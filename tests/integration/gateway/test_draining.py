"""A replica that the publisher is about to hold gets nothing new. The publisher's own announcer, a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry

from deploy.local.embedded import EmbeddedRedis, free_port, running
from services.publisher.announcing import RedisAnnouncer
from services.publisher.metrics import PublisherMetrics
from shared.contracts.replicas import CHANNEL_REPLICAS
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import Gateway, eventually, serving, text_of

Pair = tuple[FakeEngine, FakeEngine]


@pytest.fixture
def engines() -> Iterator[Pair]:
    with FakeEngine(reply="one") as one, FakeEngine(reply="two") as two:
        yield one, two


def an_announcer(url: str) -> RedisAnnouncer:
    return RedisAnnouncer(url, PublisherMetrics(CollectorRegistry()), longest_s=30)


async def answers(gateway: Gateway, count: int = 12) -> set[str]:
    """Of requests for different files."""
    said = [await gateway.complete(prompt=f"# file {index}\n") for index in range(count)]
    return {text_of(answer.text) for answer in said}


async def listening(gateway: Gateway) -> bool:
    return await gateway.metric("drain_listener_connected") == 1


async def drains(gateway: Gateway, engine: FakeEngine) -> bool:
    name = engine.url.removeprefix("http://")
    return await gateway.metric("replica_draining", replica=name) == 1


async def test_nothing_new_while_it_drains(engines: Pair, clean_redis: str) -> None:
    one, two = engines
    announcer = an_announcer(clean_redis)
    async with serving(one.url, f"{two.url}/", redis_url=clean_redis) as gateway:
        await eventually(lambda: listening(gateway))
        assert await answers(gateway) == {"one", "two"}
        with announcer.draining(f"{one.url}/"):
            await eventually(lambda: drains(gateway, one))
            assert await answers(gateway) == {"two"}
            two.stop()
            assert await answers(gateway, 3) == {"one"}, "better held than lost"
        two.start()

        async def serves_again() -> bool:
            return not await drains(gateway, one)

        await eventually(serves_again)
    announcer.close()


async def test_a_gateway_that_starts_in_the_middle_knows(engines: Pair, clean_redis: str) -> None:
    one, two = engines
    announcer = an_announcer(clean_redis)
    with announcer.draining(two.url):
        async with serving(one.url, two.url, redis_url=clean_redis) as gateway:
            await eventually(lambda: drains(gateway, two))
            assert await answers(gateway) == {"one"}
    announcer.close()


async def test_a_single_replica_does_not_listen(clean_redis: str) -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url, redis_url=clean_redis) as gateway:
            await asyncio.sleep(0.1)
            with redis.Redis.from_url(clean_redis) as client:
                assert client.pubsub_numsub(CHANNEL_REPLICAS) == [(CHANNEL_REPLICAS.encode(), 0)]
            assert not await listening(gateway)


async def test_nonsense_on_the_channel_is_not_believed(engines: Pair, clean_redis: str) -> None:
    one, two = engines
    async with serving(one.url, two.url, redis_url=clean_redis) as gateway:
        await eventually(lambda: listening(gateway))
        with redis.Redis.from_url(clean_redis) as client:
            client.publish(CHANNEL_REPLICAS, b'{"url": "x"}')
            client.publish(CHANNEL_REPLICAS, b"\xff")
        announcer = an_announcer(clean_redis)
        with announcer.draining(two.url):
            await eventually(lambda: drains(gateway, two))
        announcer.close()


async def test_without_redis_nothing_drains_and_with_it_again(engines: Pair, tmp_path: Path) -> None:
    one, two = engines
    server = EmbeddedRedis(tmp_path / "redis", free_port())
    announcer = an_announcer(server.url())
    async with serving(one.url, two.url, redis_url=server.url()) as gateway:
        assert await answers(gateway) == {"one", "two"}
        holding = announcer.draining(one.url)
        with running(server):
            await eventually(lambda: listening(gateway))
            holding.__enter__()
            await eventually(lambda: drains(gateway, one))

        async def not_listening() -> bool:
            return not await listening(gateway)

        await eventually(not_listening)
        assert await answers(gateway) == {"one", "two"}
        holding.__exit__(None, None, None)
        with running(server), announcer.draining(two.url):
            await eventually(lambda: drains(gateway, two), 10)
    announcer.close()
