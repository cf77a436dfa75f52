"""What every `Streams` promises: the same suite for Redis and for its in-memory twin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from shared.kit.errors import TemporaryError
from shared.streams import DeadLetter, Entry, MemoryStreams, RedisStreams, Streams

S, G = "stream", "group"


@pytest.fixture(params=["memory", "redis"])
async def streams(request: pytest.FixtureRequest) -> AsyncIterator[Streams]:
    if request.param == "memory":
        made: Streams = MemoryStreams()
    else:
        made = RedisStreams.from_url(request.getfixturevalue("clean_redis"))
    await made.ensure_group(S, G)
    yield made
    await made.close()


def payloads(entries: list[Entry]) -> list[bytes]:
    return [entry.payload for entry in entries]


async def test_entries_come_once_in_order_to_one_consumer_of_the_group(streams: Streams) -> None:
    await streams.append(S, [b"1", b"2", b"3"])
    assert payloads(await streams.read(S, G, "a", count=2)) == [b"1", b"2"]
    assert payloads(await streams.read(S, G, "b", count=2)) == [b"3"]
    assert await streams.read(S, G, "a", count=2) == []


async def test_a_group_made_late_sees_what_was_there_before(streams: Streams) -> None:
    await streams.append("late", [b"1"])
    await streams.ensure_group("late", G)
    await streams.ensure_group("late", G)
    assert payloads(await streams.read("late", G, "a", count=5)) == [b"1"]


async def test_unacknowledged_entries_come_again_to_their_consumer_only(streams: Streams) -> None:
    await streams.append(S, [b"1", b"2"])
    first, second = await streams.read(S, G, "a", count=2)
    await streams.ack(S, G, [first.entry_id])
    own = await streams.read_own(S, G, "a", count=10)
    assert [entry.entry_id for entry in own] == [second.entry_id]
    assert own[0].deliveries > 1
    assert await streams.read_own(S, G, "b", count=10) == []


async def test_idle_entries_can_be_taken_over_and_then_belong_to_the_taker(streams: Streams) -> None:
    await streams.append(S, [b"1"])
    await streams.read(S, G, "dead", count=1)
    assert await streams.claim_idle(S, G, "b", min_idle_ms=60_000, count=10) == []
    await asyncio.sleep(0.02)
    assert payloads(await streams.claim_idle(S, G, "b", min_idle_ms=5, count=10)) == [b"1"]
    assert payloads(await streams.read_own(S, G, "b", count=10)) == [b"1"]
    assert await streams.read_own(S, G, "dead", count=10) == []


async def test_length_is_what_is_not_acknowledged(streams: Streams) -> None:
    await streams.append(S, [b"1", b"2"])
    (entry,) = await streams.read(S, G, "a", count=1)
    assert await streams.length(S) == 2
    await streams.ack(S, G, [entry.entry_id, "99999-0"])
    assert await streams.length(S) == 1


async def test_a_dead_letter_leaves_the_stream_and_is_kept_beside_it(streams: Streams) -> None:
    await streams.append(S, [b"bad"])
    (entry,) = await streams.read(S, G, "a", count=1)
    await streams.dead_letter(S, G, entry, "not JSON")
    assert await streams.length(S) == 0
    assert await streams.read_own(S, G, "a", count=1) == []
    assert await streams.length(f"{S}:dead") == 1


async def dead(streams: Streams, *payload: bytes) -> list[DeadLetter]:
    await streams.append(S, payload)
    for entry in await streams.read(S, G, "a", count=len(payload)):
        await streams.dead_letter(S, G, entry, "reason " + entry.payload.decode())
    return await streams.dead_letters(S)


async def test_dead_letters_can_be_looked_at_page_by_page_and_stay(streams: Streams) -> None:
    before_s = time.time()
    first, second, third = await dead(streams, b"1", b"2", b"3")
    assert (first.payload, first.reason) == (b"1", "reason 1")
    assert before_s - 1 < first.dead_since_s < time.time() + 1
    assert await streams.dead_letters(S, count=2) == [first, second]
    assert await streams.dead_letters(S, after=second.entry_id) == [third]
    assert await streams.dead_letters("other") == []


async def test_a_dead_letter_goes_back_to_its_stream_once(streams: Streams) -> None:
    first, second = await dead(streams, b"1", b"2")
    assert await streams.requeue(S, first.entry_id)
    assert not await streams.requeue(S, first.entry_id)
    assert payloads(await streams.read(S, G, "a", count=10)) == [b"1"]
    assert await streams.dead_letters(S) == [second]


async def test_two_who_requeue_the_same_dead_letter_requeue_it_once(streams: Streams) -> None:
    (letter,) = await dead(streams, b"1")
    done = await asyncio.gather(*(streams.requeue(S, letter.entry_id) for _ in range(8)))
    assert sum(done) == 1
    assert await streams.length(S) == 1


async def test_a_dead_letter_can_be_dropped(streams: Streams) -> None:
    (letter,) = await dead(streams, b"1")
    assert await streams.drop_dead(S, letter.entry_id)
    assert not await streams.drop_dead(S, letter.entry_id)
    assert await streams.dead_letters(S) == []
    assert await streams.length(S) == 0


async def trimmed_while_claimed(streams: Streams) -> None:
    """ "a" holds 300 entries of which none is left, and then `b"living"`."""
    await streams.append(S, [b"x"] * 300)
    assert len(await streams.read(S, G, "a", count=300)) == 300
    for _ in range(3):
        await streams.append(S, [b"living"] * 200, max_length=200)
    assert payloads(await streams.read(S, G, "a", count=1)) == [b"living"]


async def test_entries_that_were_trimmed_while_claimed_hide_none_behind_them(streams: Streams) -> None:
    await trimmed_while_claimed(streams)
    assert payloads(await streams.read_own(S, G, "a", count=2)) == [b"living"]


async def test_entries_that_were_trimmed_while_claimed_can_be_passed_over(streams: Streams) -> None:
    await trimmed_while_claimed(streams)
    assert payloads(await streams.claim_idle(S, G, "b", min_idle_ms=0, count=2)) == [b"living"]


async def test_a_blocking_read_returns_as_soon_as_something_arrives(streams: Streams) -> None:
    reader = asyncio.create_task(streams.read(S, G, "a", count=1, block_ms=5_000))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    await streams.append(S, [b"1"])
    assert payloads(await reader) == [b"1"]
    assert time.monotonic() - started < 2


async def test_a_blocking_read_ends_empty_after_its_wait(streams: Streams) -> None:
    assert await streams.read(S, G, "a", count=1, block_ms=30) == []


async def test_entries_can_be_looked_at_page_by_page_and_stay_unclaimed(streams: Streams) -> None:
    await streams.append(S, [b"1", b"2", b"3"])
    await streams.read(S, G, "a", count=1)
    first = await streams.entries(S, count=2)
    assert payloads(first) == [b"1", b"2"]
    assert payloads(await streams.entries(S, after=first[-1].entry_id)) == [b"3"]
    assert payloads(await streams.read(S, G, "a", count=5)) == [b"2", b"3"]


async def test_one_life_has_one_name(streams: Streams) -> None:
    assert await streams.instance() == await streams.instance() != ""


async def test_max_length_bounds_a_stream(streams: Streams) -> None:
    for _ in range(20):
        await streams.append(S, [b"x"] * 100, max_length=500)
    assert await streams.length(S) < 1000  # Redis trims whole nodes of 100 entries


async def test_a_redis_that_is_away_is_a_temporary_error() -> None:
    streams = RedisStreams.from_url("redis://127.0.0.1:1/0", timeout_s=0.2)
    with pytest.raises(TemporaryError, match="redis"):
        await streams.append(S, [b"1"])
    with pytest.raises(TemporaryError):
        await streams.ping()
    with pytest.raises(TemporaryError):
        await streams.instance()
    await streams.close()
