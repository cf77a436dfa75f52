"""Crashes between commit and acknowledgement, outages, poison: nothing is lost and nothing counts twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.ingest.gauges import Gauges
from services.ingest.metrics import IngestMetrics
from services.ingest.recorder import Recorder
from services.ingest.relay import Relay
from services.ingest.worker import Loop
from shared.contracts.names import GROUP_RECORDER, STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.db.engine import async_sessions, make_async_engine
from shared.kit.errors import TemporaryError
from shared.streams import RedisStreams
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room, fresh_metrics

GENERATIONS = "SELECT count(*) FROM generations"
DEAD = f"{STREAM_GENERATIONS}:dead"


class Dying(RedisStreams):
    """Redis whose client is killed right before it acknowledges (`ack`), or right after it appended (`append`)."""

    call = ""

    async def ack(self, stream: str, group: str, entry_ids: Sequence[str]) -> None:
        if self.call == "ack":
            raise asyncio.CancelledError
        await super().ack(stream, group, entry_ids)

    async def append(self, stream: str, payloads: Sequence[bytes], *, max_length: int | None = None) -> list[str]:
        sent = await super().append(stream, payloads, max_length=max_length)
        if self.call == "append":
            raise asyncio.CancelledError
        return sent


@pytest.fixture
async def dying(room: Room) -> Any:
    streams = Dying.from_url(room.settings.redis_url)
    yield streams
    await streams.close()


async def test_a_recorder_killed_between_commit_and_acknowledgement(room: Room, dying: Dying) -> None:
    await room.emit(*(make_generation() for _ in range(5)))
    dying.call = "ack"
    killed = Recorder(room.settings, room.sessions, dying, fresh_metrics())
    with pytest.raises(asyncio.CancelledError):
        await killed.step()
    assert await room.value(GENERATIONS) == 5
    assert await room.streams.length(STREAM_GENERATIONS) == 5
    assert await room.recorder.step() == 5  # same name: finds its own at once
    assert await room.value(GENERATIONS) == 5
    assert await room.streams.length(STREAM_GENERATIONS) == 0


async def test_what_another_recorder_left_is_taken_over(room: Room) -> None:
    await room.emit(make_generation())
    await room.streams.ensure_group(STREAM_GENERATIONS, GROUP_RECORDER)
    await room.streams.read(STREAM_GENERATIONS, GROUP_RECORDER, "dead-recorder", count=10)
    await asyncio.sleep(0.1)
    assert await room.recorder.step() == 1
    assert await room.value(GENERATIONS) == 1


async def test_poison_is_put_aside_with_the_reason_and_blocks_nothing(room: Room) -> None:
    good = [make_generation(), make_generation()]
    payloads = [
        b"{",
        good[0].model_dump_json().encode(),
        make_generation("a\x00b").model_dump_json().encode(),
        make_generation().model_copy(update={"token_ids": [2**40]}).model_dump_json().encode(),
        make_generation(untrainable="x").model_copy(update={"token_ids": [2**40]}).model_dump_json().encode(),
        good[1].model_dump_json().encode(),
    ]
    await room.streams.append(STREAM_GENERATIONS, payloads)
    assert await room.recorder.step() == 6
    assert await room.value(GENERATIONS) == 2
    assert await room.streams.length(STREAM_GENERATIONS) == 0
    assert await room.streams.length(DEAD) == 4
    assert room.metric("tabwise_ingest_dead_letters_total", reason="invalid_generation") == 2
    assert room.metric("tabwise_ingest_dead_letters_total", reason="refused_by_database") == 2


async def test_a_value_that_no_index_can_hold_is_poison_too_and_blocks_nothing(room: Room) -> None:
    good = make_generation()
    long = make_generation(request_id="".join(f"{number:x}" for number in range(10**5, 10**5 + 4000)))
    await room.emit(long, good)
    assert await room.recorder.step() == 2
    assert await room.value(GENERATIONS) == 1
    assert room.metric("tabwise_ingest_dead_letters_total", reason="refused_by_database") == 1


async def test_dead_letters_that_wait_are_measured_and_can_come_back(room: Room) -> None:
    await room.streams.append(STREAM_GENERATIONS, [b"{", make_generation().model_dump_json().encode()])
    await room.recorder.step()
    gauges = Gauges(room.sessions, room.streams, room.metrics)
    await gauges.step()
    assert room.metric("tabwise_ingest_dead_letters_waiting", stream=STREAM_GENERATIONS) == 1
    assert room.metric("tabwise_ingest_dead_letters_waiting", stream=STREAM_EXPERIENCE) == 0
    (letter,) = await room.streams.dead_letters(STREAM_GENERATIONS)
    assert await room.streams.requeue(STREAM_GENERATIONS, letter.entry_id)
    await room.recorder.step()  # poison it stays
    (again,) = await room.streams.dead_letters(STREAM_GENERATIONS)
    assert (again.payload, again.reason) == (letter.payload, letter.reason)


async def test_a_generation_that_was_recorded_already_may_be_requeued(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation, generation)
    await room.generated(generation)
    assert await room.value(GENERATIONS) == 1


async def test_the_recorder_survives_a_redis_that_lost_its_group(room: Room) -> None:
    await room.generated(make_generation())
    await room.streams._redis.flushall()
    await room.emit(make_generation())
    with pytest.raises(TemporaryError):
        await room.recorder.step()
    assert await room.recorder.step() == 1
    assert await room.value(GENERATIONS) == 2


async def test_a_relay_killed_after_sending_sends_the_same_message_again(room: Room, dying: Dying) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation)
    await room.joiner.step()
    await room.resolver.step_accepted()
    dying.call = "append"
    with pytest.raises(asyncio.CancelledError):
        await Relay(room.settings, room.sessions, dying, fresh_metrics()).step()
    assert await room.relay.step() == 1
    assert await room.relay.step() == 0
    first, second = await room.experience()
    assert first.experience_id == second.experience_id  # the trainer knows it by its id


async def test_a_relay_killed_before_sending_loses_nothing(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation)
    await room.joiner.step()
    await room.resolver.step_accepted()
    away = RedisStreams.from_url("redis://127.0.0.1:1/0")
    with pytest.raises(TemporaryError):
        await Relay(room.settings, room.sessions, away, fresh_metrics()).step()
    await away.close()
    assert await room.relay.step() == 1
    assert len(await room.experience()) == 1


async def test_messages_keep_their_order(room: Room) -> None:
    prompts = [fim_prompt(f"x{number} = ") for number in range(10)]
    generations = [make_generation(prompt=prompt) for prompt in prompts]
    await room.generated(*generations)
    for generation in generations:
        await room.submit(generation)
        await room.joiner.step()
        await room.resolver.step_accepted()
    await room.relay.step()
    assert [experience.prompt for experience in await room.experience()] == prompts


async def test_sent_messages_are_forgotten_after_a_while_and_unsent_ones_never(room: Room) -> None:
    for prompt in (fim_prompt("a"), fim_prompt("b")):
        generation = make_generation(prompt=prompt)
        await room.generated(generation)
        await room.submit(generation)
        await room.joiner.step()
        await room.resolver.step_accepted()
        if prompt == fim_prompt("a"):
            await room.relay.step()
    room.clock.advance(90_000)
    await room.relay.prune()
    assert await room.value("SELECT count(*) FROM outbox WHERE sent_at IS NULL") == 1
    assert await room.value("SELECT count(*) FROM outbox") == 1
    assert await room.streams.length(STREAM_EXPERIENCE) == 1


async def test_a_resolver_that_dies_before_the_commit_leaves_no_half(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation)
    await room.joiner.step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlalchemy.orm.session.SessionTransaction.commit", _raise_cancelled)
        with pytest.raises(asyncio.CancelledError):
            await room.resolver.step_accepted()
    assert await room.value("SELECT count(*) FROM experience") == 0
    assert await room.value("SELECT count(*) FROM outcomes WHERE resolved_at IS NOT NULL") == 0
    await room.work()
    assert len(await room.experience()) == 1


def _raise_cancelled(*_: object, **__: object) -> None:
    raise asyncio.CancelledError


async def test_a_loop_survives_an_outage_and_says_so_once(room: Room) -> None:
    metrics: IngestMetrics = fresh_metrics()
    engine = make_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    dead = Relay(room.settings, async_sessions(engine), room.streams, metrics)
    steps = iter([dead.step, dead.step, room.relay.step, room.relay.step])
    finished = asyncio.Event()

    async def step() -> int:
        try:
            return await next(steps)()
        except StopIteration:
            finished.set()
            await asyncio.sleep(60)
            raise

    with capture_logs() as logs:
        running = asyncio.create_task(Loop("relay", step, 0.01).run(metrics))
        await asyncio.wait_for(finished.wait(), 20)
        running.cancel()
    await engine.dispose()
    assert [entry["event"] for entry in logs] == ["loop waits for the other side", "loop works again"]
    value = metrics.registry.get_sample_value
    assert value("tabwise_ingest_loop_failures_total", {"loop": "relay", "error": "OperationalError"}) == 2
    assert value("tabwise_ingest_loop_up", {"loop": "relay"}) == 1
