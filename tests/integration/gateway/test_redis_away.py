"""Redis goes away and comes back: completions keep flowing, and what was sampled meanwhile arrives later."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deploy.local.embedded import EmbeddedRedis, free_port, running
from shared.streams import RedisStreams
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import eventually, serving, text_of


async def test_redis_killed_and_restarted(tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path / "redis", free_port())
    streams = RedisStreams.from_url(redis.url(), timeout_s=1.0)
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url, streams=streams) as gateway:

            async def complete(count: int) -> None:
                for _ in range(count):
                    assert text_of((await gateway.complete()).text) == "ok"

            with running(redis):
                await complete(3)
                await eventually(lambda: recorded(gateway, 3))
            await complete(5)
            assert await gateway.metric("emitter_queue_depth") == 5
            assert await gateway.metric("generations_recorded_total") == 3
            with running(redis):
                await eventually(lambda: recorded(gateway, 8), 15)
                await complete(2)
                generations = await gateway.generations(10)
            assert await gateway.metric("generations_dropped_total", reason="redis_away") == 0
    await streams.close()

    assert len({generation.generation_id for generation in generations}) == 10


async def recorded(gateway: object, count: int) -> bool:
    from tests.integration.gateway.support import Gateway

    assert isinstance(gateway, Gateway)
    await asyncio.sleep(0.05)
    return await gateway.metric("generations_recorded_total") == count


async def test_without_redis_completions_flow_and_the_loss_is_counted() -> None:
    streams = RedisStreams.from_url(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url, streams=streams, capture_retry_s=0.3, capture_queue_size=3) as gateway:
            for _ in range(6):
                assert text_of((await gateway.complete()).text) == "ok"

            async def all_lost() -> bool:
                reasons = [
                    await gateway.metric("generations_dropped_total", reason=reason)
                    for reason in ("redis_away", "queue_full")
                ]
                return sum(reason or 0 for reason in reasons) == 6

            await eventually(all_lost)
    await streams.close()
