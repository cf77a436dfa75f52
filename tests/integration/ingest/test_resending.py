"""Redis came back without what it had acknowledged: nothing is lost, and what was dealt with is not sent again."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from services.ingest.outbox_queries import begin_sending
from services.ingest.resending import Resending
from shared.contracts.names import GROUP_TRAINER, STREAM_EXPERIENCE
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room

ROUND = """
INSERT INTO training_rounds (round_id, parent_version, started_at, committed_at, minibatches, trained, stats)
VALUES ('r', 0, now(), now(), 0, 0, '{}')"""
UNSENT = "SELECT count(*) FROM outbox WHERE sent_at IS NULL"


@pytest.fixture
async def resending(room: Room, monkeypatch: pytest.MonkeyPatch) -> Resending:
    """Five messages were sent in the first life of Redis; the test is in the second one."""
    generations = [make_generation(prompt=fim_prompt(f"x{number} = ")) for number in range(5)]
    await room.generated(*generations)
    for generation in generations:
        await room.submit(generation)
    await room.work()
    assert await room.streams.length(STREAM_EXPERIENCE) == 5
    made = Resending(room.sessions, room.streams, room.metrics)
    assert await made.step() == 0
    await begin_life(room, monkeypatch)
    return made


async def begin_life(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    async def instance() -> str:
        return "second life"

    monkeypatch.setattr(room.streams, "instance", instance)


async def ids(room: Room) -> list[str]:
    entries = await room.streams.entries(STREAM_EXPERIENCE)
    return [entry.entry_id for entry in entries]


async def test_what_is_gone_is_sent_again_and_nothing_else(room: Room, resending: Resending) -> None:
    first, second, *_ = await ids(room)
    await room.streams._redis.xdel(STREAM_EXPERIENCE, first, second)
    assert await resending.step() == 2
    assert await resending.step() == 0
    assert await room.relay.step() == 2
    assert len({one.experience_id for one in await room.experience()}) == 5
    assert room.metric("tabwise_ingest_resent_total") == 2


async def test_what_is_claimed_or_dead_is_there(room: Room, resending: Resending) -> None:
    await room.streams.ensure_group(STREAM_EXPERIENCE, GROUP_TRAINER)
    entry, *_ = await room.streams.read(STREAM_EXPERIENCE, GROUP_TRAINER, "t", count=3)
    await room.streams.dead_letter(STREAM_EXPERIENCE, GROUP_TRAINER, entry, "poison")
    await room.streams.append(STREAM_EXPERIENCE, [b"{", b"[]", b'{"experience_id": 5}'])
    assert await resending.step() == 0


async def test_what_was_trained_is_not_sent_again(room: Room, resending: Resending) -> None:
    trained, *_ = await room.streams.entries(STREAM_EXPERIENCE)
    async with room.sessions.begin() as session:
        await session.execute(text(ROUND))
        await session.execute(
            text(
                "INSERT INTO trained_experience (experience_id, round_id, disposition) "
                "SELECT message_id, 'r', 'trained' FROM outbox ORDER BY outbox_id LIMIT 1"
            )
        )
    await room.streams._redis.delete(STREAM_EXPERIENCE)
    assert await resending.step() == 4
    await room.relay.step()
    assert trained.payload not in [entry.payload for entry in await room.streams.entries(STREAM_EXPERIENCE)]


async def test_a_redis_that_lost_everything_gets_everything_again(room: Room, resending: Resending) -> None:
    await room.streams._redis.flushall()
    assert await resending.step() == 5
    assert await room.relay.step() == 5
    assert len(await room.experience()) == 5


async def test_a_message_that_a_relay_has_just_sent_is_waited_for(room: Room, resending: Resending) -> None:
    """Sent to the first life, lost with it, and marked as sent only now."""
    await room.streams._redis.flushall()
    async with room.sessions() as relaying:
        await begin_sending(relaying)
        looking = asyncio.create_task(resending.step())
        await asyncio.sleep(0.2)
        assert not looking.done()
        await relaying.commit()
    assert await looking == 5
    assert await room.value(UNSENT) == 5
