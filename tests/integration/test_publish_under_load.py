"""Developers complete while a version is published to two replicas: real Redis, real PostgreSQL, the real publisher."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import Gateway, chunks, eventually, serving
from tests.integration.publisher.conftest import Bench, bench

__all__ = ["bench"]
LOAD_S = 1.0
DEVELOPERS = 8


class Typing:
    """Developers that ask again and again, streamed and whole, each in a file of their own."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.answered = 0
        self.failures: list[str] = []
        self.stop = False

    async def developer(self, number: int) -> None:
        for turn in itertools.count():
            if self.stop:
                return
            stream = (number + turn) % 2 == 0
            answer = await self._gateway.complete(prompt=f"# file {number}\n", stream=stream)
            if answer.status_code != 200 or not _is_whole(answer.text, stream):
                self.failures.append(f"{answer.status_code} {answer.text[:200]}")
            self.answered += 1


def _is_whole(text: str, stream: bool) -> bool:
    if not stream:
        return "finish_reason" in text
    return chunks(text)[-1]["choices"][0]["finish_reason"] == "stop" and text.endswith("data: [DONE]\n\n")


async def asked_while_paused(engine: FakeEngine) -> int:
    """How many requests the replica was sent from 0.5 s after it was paused until it resumed."""
    await eventually(lambda: engine.paused, 20)
    await asyncio.sleep(0.5)
    before = _completions(engine)
    await eventually(lambda: not engine.paused, 20)
    return _completions(engine) - before


def _completions(engine: FakeEngine) -> int:
    """Without the publisher's probes, which are not streamed."""
    return sum(bool(body.get("stream")) for body in engine.requests)


@pytest.mark.usefixtures("clean_redis")
async def test_no_completion_fails_and_the_held_replica_gets_nothing_new(bench: Bench, clean_redis: str) -> None:
    with FakeEngine(reply="return total\n") as other:
        engines = (bench.engine, other)
        for engine in engines:
            engine.reply, engine.faults.reload_delay_s, engine.faults.token_delay_s = "return total\n", LOAD_S, 0.002
        urls = ",".join(engine.url for engine in engines)
        bench.settings = bench.settings.model_copy(
            update={"engine_urls": urls, "redis_url": clean_redis, "load_timeout_s": 5.0}
        )
        bench.publisher()
        bench.commit(1)
        async with serving(*(engine.url for engine in engines), redis_url=clean_redis) as gateway:
            typing = Typing(gateway)
            work = [asyncio.create_task(typing.developer(number)) for number in range(DEVELOPERS)]
            await eventually(lambda: typing.answered > 2 * DEVELOPERS)
            watches = [asyncio.create_task(asked_while_paused(engine)) for engine in engines]
            outcome = await asyncio.to_thread(bench.tick)
            new_requests = await asyncio.gather(*watches)
            answered = typing.answered
            await eventually(lambda: typing.answered > answered + 2 * DEVELOPERS)
            typing.stop = True
            await asyncio.gather(*work)

        assert outcome == "published"
        assert all(bench.serves(1, engine) for engine in engines)
        assert typing.failures == []
        assert new_requests == [0, 0]
        assert [engine.aborted for engine in engines] == [0, 0]
