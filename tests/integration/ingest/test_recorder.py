"""Generations by COPY: many at once, each column as it was, what is there stays, poison alone is put aside."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from services.ingest.generation_copy import copy_generations, copy_row, prompt_digest
from services.ingest.recorder import Recorder
from services.ingest.rows import from_row
from services.ingest.worker import is_temporary
from shared.contracts.generation import Generation, PolicySpan
from shared.contracts.names import STREAM_GENERATIONS
from shared.db.models import GenerationRow
from shared.kit.errors import TemporaryError
from shared.streams import Entry, RedisStreams
from tests.factories import make_generation
from tests.integration.ingest.conftest import Room, fresh_metrics

GENERATIONS = "SELECT count(*) FROM generations"
DEAD = f"{STREAM_GENERATIONS}:dead"


def small_batches(room: Room, streams: RedisStreams | None = None) -> Recorder:
    settings = room.settings.model_copy(update={"recorder_batch_size": 4})
    return Recorder(settings, room.sessions, streams or room.streams, fresh_metrics())


async def drained(recorder: Recorder) -> int:
    return sum([size async for size in _steps(recorder)])


async def _steps(recorder: Recorder) -> Any:
    while size := await recorder.step():
        yield size


async def test_every_column_comes_back(room: Room) -> None:
    odd = 'a\\b\t"ü" \r\n 𝄞 \\N \\. {1,2} \\x41'
    sent = make_generation(odd, prompt=odd).model_copy(
        update={
            "stop_reason": odd,
            "first_token_s": None,
            "policy_spans": [PolicySpan(version=3, start=0, end=1), PolicySpan(version=4, start=1, end=2)],
            "client_gone": True,
        }
    )
    plain = make_generation()
    empty = make_generation(untrainable="no_token_ids").model_copy(
        update={"prompt_token_ids": [], "token_ids": [], "logprobs": [], "text_offsets": [], "policy_spans": []}
    )
    await room.generated(sent, plain, empty)
    async with room.sessions() as session:
        for generation in (sent, plain, empty):
            row = await session.get_one(GenerationRow, generation.generation_id)
            assert from_row(row) == generation.model_copy(
                update={"stop_reason": None if generation.stop_reason is None else str(generation.stop_reason)}
            )
            assert row.prompt_sha256 == prompt_digest(generation.prompt)
            assert row.policy_version == generation.policy_version


async def test_values_that_are_no_numbers(room: Room) -> None:
    odd = make_generation()
    odd = odd.model_copy(update={"logprobs": [math.nan, -math.inf, *odd.logprobs[2:]], "untrainable": "bad_logprobs"})
    async with room.sessions.begin() as session:
        await copy_generations(session, [copy_row(odd, b"")])
    kept = await room.value("SELECT logprobs FROM generations")
    assert math.isnan(kept[0])
    assert kept[1:] == odd.logprobs[1:]


async def test_a_backlog_is_taken_in_full_batches(room: Room) -> None:
    await room.emit(*(make_generation() for _ in range(11)))
    recorder = small_batches(room)
    assert [await recorder.step() for _ in range(3)] == [4, 4, 3]
    assert await room.value(GENERATIONS) == 11
    assert await room.streams.length(STREAM_GENERATIONS) == 0


async def test_what_is_there_stays_and_what_is_new_is_added(room: Room) -> None:
    first = make_generation("first")
    await room.generated(first)
    again = first.model_copy(update={"text": "second"})
    await room.generated(again, again, make_generation())
    assert await room.value(GENERATIONS) == 2
    assert await room.value(f"SELECT text FROM generations WHERE generation_id = '{first.generation_id}'") == "first"


async def test_poison_among_many_is_put_aside_alone(room: Room) -> None:
    poison = make_generation("a\x00b")
    huge = make_generation().model_copy(update={"prompt_token_ids": [2**100]})
    many = [make_generation() for _ in range(30)]
    await room.emit(*many[:7], poison, *many[7:20], huge, *many[20:])
    assert await drained(small_batches(room)) == 32
    assert await room.value(GENERATIONS) == 30
    assert await room.streams.length(STREAM_GENERATIONS) == 0
    dead = await room.streams._redis.xrange(DEAD)
    kept = {Generation.model_validate_json(fields[b"payload"]).generation_id for _, fields in dead}
    assert kept == {poison.generation_id, huge.generation_id}


class Failing(RedisStreams):
    """Redis that goes away when a batch is acknowledged for the second time."""

    acks = 0

    async def ack(self, stream: str, group: str, entry_ids: Sequence[str]) -> None:
        self.acks += 1
        if self.acks == 2:
            raise TemporaryError("away")
        await super().ack(stream, group, entry_ids)


async def test_what_was_read_ahead_is_not_lost_when_a_batch_fails(room: Room) -> None:
    await room.emit(*(make_generation() for _ in range(18)))
    streams = Failing.from_url(room.settings.redis_url)
    recorder = small_batches(room, streams)
    assert await recorder.step() == 4
    with pytest.raises(TemporaryError):
        await recorder.step()
    await drained(recorder)
    assert await room.value(GENERATIONS) == 18
    assert await room.streams.length(STREAM_GENERATIONS) == 0
    await streams.close()


class Slow(RedisStreams):
    """Redis that never answers a reading ahead."""

    reads = 0

    async def read(self, stream: str, group: str, consumer: str, *, count: int, block_ms: int = 0) -> list[Entry]:
        self.reads += 1
        if self.reads == 2:
            await asyncio.sleep(60)
        return await super().read(stream, group, consumer, count=count, block_ms=block_ms)


async def test_a_recorder_that_is_stopped_while_it_reads_ahead(room: Room) -> None:
    await room.emit(*(make_generation() for _ in range(10)))
    streams = Slow.from_url(room.settings.redis_url)
    recorder = small_batches(room, streams)
    step = asyncio.create_task(recorder.step())
    await asyncio.sleep(0.3)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    await drained(recorder)
    assert await room.value(GENERATIONS) == 10
    await streams.close()


async def test_a_connection_that_breaks_is_temporary_and_the_next_one_works(room: Room) -> None:
    await room.generated(make_generation())
    with pytest.raises(DBAPIError) as caught:  # noqa: PT012 - the session belongs to it
        async with room.sessions.begin() as session:
            own = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with room.sessions() as other:
                await other.execute(text(f"SELECT pg_terminate_backend({own})"))
            generation = make_generation()
            await copy_generations(session, [copy_row(generation, prompt_digest(generation.prompt))])
    assert is_temporary(caught.value)
    await room.generated(make_generation())
    assert await room.value(GENERATIONS) == 2
