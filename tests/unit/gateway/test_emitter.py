from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.gateway.capture import Capture
from services.gateway.emitter import Emitter
from services.gateway.metrics import GatewayMetrics
from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_GENERATIONS
from shared.kit.errors import TemporaryError
from shared.streams import MemoryStreams
from tests.unit.gateway.support import a_call, a_delta


class Away(MemoryStreams):
    """Raises while `away`; hangs while `hanging`."""

    away = False
    hanging = False

    async def append(self, stream: str, payloads: Sequence[bytes], *, max_length: int | None = None) -> list[str]:
        if self.hanging:
            await asyncio.sleep(60)
        if self.away:
            raise TemporaryError("redis: away")
        return await super().append(stream, payloads, max_length=max_length)


class Rig:
    def __init__(self, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        self.streams = Away()
        self.emitter = Emitter(self.streams, GatewaySettings(**settings), GatewayMetrics(self.registry))

    def offer(self, count: int) -> None:
        for number in range(count):
            self.emitter.offer(generation(number))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tabwise_gateway_{name}", labels)

    def dropped(self, reason: str) -> float | None:
        return self.value("generations_dropped_total", reason=reason)


def generation(number: int) -> Generation:
    capture = Capture(a_call(request_id=f"cmpl-{number}"))
    capture.add(a_delta(finish_reason="stop"))
    return capture.generations(replica="", client_gone=False, failed=False, first_token_s=0.1, total_s=0.2)[0]


async def eventually(condition: Any, timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_generations_arrive_in_order_and_batched() -> None:
    rig = Rig(capture_batch_size=4)
    rig.offer(10)
    rig.emitter.start()
    await rig.emitter.stop()

    await rig.streams.ensure_group(STREAM_GENERATIONS, "g")
    entries = await rig.streams.read(STREAM_GENERATIONS, "g", "c", count=100)
    ids = [Generation.model_validate_json(entry.payload).request_id for entry in entries]
    assert ids == [f"cmpl-{number}" for number in range(10)]
    assert rig.value("generations_recorded_total") == 10
    assert rig.value("emitter_queue_depth") == 0


async def test_offers_after_an_idle_while_arrive_too() -> None:
    rig = Rig()
    rig.emitter.start()
    for _ in range(3):
        rig.offer(1)
        await asyncio.sleep(0.02)

    assert await rig.streams.length(STREAM_GENERATIONS) == 3
    await rig.emitter.stop()


async def test_redis_back_in_time_loses_nothing() -> None:
    rig = Rig(capture_retry_s=30)
    rig.streams.away = True
    rig.emitter.start()
    rig.offer(3)
    await eventually(lambda: rig.value("append_failures_total"))

    rig.streams.away = False
    await eventually(lambda: rig.value("generations_recorded_total") == 3)

    await rig.emitter.stop()
    assert rig.dropped("redis_away") == 0


async def test_away_too_long_is_counted() -> None:
    rig = Rig(capture_retry_s=0.1)
    rig.streams.away = True
    rig.emitter.start()
    rig.offer(3)

    await eventually(lambda: rig.dropped("redis_away") == 3)
    await rig.emitter.stop()


async def test_a_full_queue_drops_the_newest_and_counts() -> None:
    rig = Rig(capture_queue_size=5)

    rig.offer(8)

    assert rig.dropped("queue_full") == 3


@pytest.mark.parametrize("trouble", ["away", "hanging"])
async def test_stopping_is_bounded(trouble: str) -> None:
    rig = Rig(capture_drain_s=0.2)
    setattr(rig.streams, trouble, True)
    rig.emitter.start()
    rig.offer(3)

    async with asyncio.timeout(2):
        await rig.emitter.stop()

    assert rig.dropped("shutdown") == 3


async def test_what_a_redis_took_that_died_right_after_is_handed_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.emitter._CONFIRM_EVERY_S", 0.02)
    rig = Rig(capture_batch_size=2)
    rig.emitter.start()
    rig.offer(3)
    await eventually(lambda: rig.value("generations_recorded_total") == 3)
    rig.streams._streams.clear()  # it answered, and died before it wrote
    rig.streams.life = "2"
    await eventually(lambda: rig.value("generations_recorded_total") == 6)
    await asyncio.sleep(0.1)
    await rig.emitter.stop()
    assert await rig.streams.length(STREAM_GENERATIONS) == 3
    assert rig.value("handed_over_again_total") == 3
    assert rig.value("emitter_queue_depth") == 0


async def test_what_a_living_redis_has_kept_long_enough_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.emitter._CONFIRM_EVERY_S", 0.02)
    monkeypatch.setattr("services.gateway.emitter._CONFIRMED_AFTER_S", 0.05)
    rig = Rig()
    rig.emitter.start()
    rig.offer(3)
    await eventually(lambda: rig.value("generations_recorded_total") == 3)
    await eventually(lambda: not rig.emitter._unconfirmed)
    rig.streams.life = "2"
    await asyncio.sleep(0.1)
    await rig.emitter.stop()
    assert rig.value("handed_over_again_total") == 0


async def test_what_is_kept_for_that_is_bounded() -> None:
    rig = Rig(capture_queue_size=5)
    rig.emitter.start()
    for count in (4, 4):
        rig.offer(count)
        await eventually(lambda: rig.value("emitter_queue_depth") == 0)
    assert len(rig.emitter._unconfirmed) == 5
    await rig.emitter.stop()
