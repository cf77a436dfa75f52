"""Group commit: everybody gets a result of their own, whatever becomes of the neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import DataError, OperationalError, ProgrammingError

from services.ingest.intake_queries import EventToStore
from services.ingest.protocols.common import FeedbackEvent
from services.ingest.writer import EventWriter, LedgerBusy
from shared.kit.errors import InvalidMessage, TemporaryError


def event(key: str, completion: str = "x") -> EventToStore:
    parsed = FeedbackEvent("rlinf", "default", "key", key, key, True, completion=completion)
    return EventToStore(parsed, datetime(2026, 1, 1, tzinfo=UTC))


class Ledger:
    """Keeps dedupe keys; refuses those that say so."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, events: Sequence[EventToStore]) -> set[str]:
        await self.open.wait()
        keys = {item.event.dedupe_key for item in events}
        self.batches.append(len(events))
        if "away" in keys:
            raise OperationalError("insert", {}, Exception("gone"))
        if "poison" in keys:
            raise DataError("insert", {}, Exception("bad"))
        if "bug" in keys:
            raise ProgrammingError("insert", {}, Exception("bad"))
        new = keys - self.stored
        self.stored |= keys
        return new


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def writer_of(ledger: Ledger, *, max_waiting: int = 100, max_batch: int = 50, timeout_s: float = 5) -> EventWriter:
    return EventWriter(ledger, max_waiting=max_waiting, max_batch=max_batch, timeout_s=timeout_s)


async def store(writer: EventWriter, *keys: str) -> list[bool | BaseException]:
    return await asyncio.gather(*(writer.store(event(key)) for key in keys), return_exceptions=True)


async def test_a_lone_event_is_committed_at_once(ledger: Ledger) -> None:
    assert await writer_of(ledger).store(event("a")) is True
    assert ledger.batches == [1]


async def test_concurrent_events_share_a_commit_and_each_knows_whether_it_is_new(ledger: Ledger) -> None:
    writer = writer_of(ledger)
    await writer.store(event("a"))
    assert await store(writer, "a", "b", "b", "c") == [False, True, False, True]
    assert ledger.batches == [1, 4]


async def test_what_comes_meanwhile_is_the_next_batch(ledger: Ledger) -> None:
    writer = writer_of(ledger, max_batch=3)
    ledger.open.clear()
    first = asyncio.create_task(writer.store(event("a")))
    await asyncio.sleep(0.01)
    rest = asyncio.gather(*(writer.store(event(str(number))) for number in range(5)))
    await asyncio.sleep(0.01)
    ledger.open.set()
    assert await first
    assert all(await rest)
    assert ledger.batches == [1, 3, 2]


async def test_large_texts_do_not_pile_up_in_one_statement(ledger: Ledger) -> None:
    writer = writer_of(ledger)
    await asyncio.gather(*(writer.store(event(key, "x" * 2_500_000)) for key in "abc"))
    assert ledger.batches == [1, 1, 1]


@pytest.mark.parametrize(("bad", "error"), [("poison", InvalidMessage), ("bug", ProgrammingError)])
async def test_one_bad_event_fails_alone(ledger: Ledger, bad: str, error: type[Exception]) -> None:
    keys = ["a", "b", bad, "c", "d", "e"]
    results = await store(writer_of(ledger), *keys)
    assert isinstance(results.pop(2), error)
    assert results == [True] * 5
    assert ledger.stored == {"a", "b", "c", "d", "e"}


async def test_all_events_of_a_batch_fail_while_the_ledger_is_away(ledger: Ledger) -> None:
    writer = writer_of(ledger)
    results = await store(writer, "a", "away", "b")
    assert all(isinstance(result, TemporaryError) for result in results)
    assert ledger.batches == [3]
    assert await writer.store(event("a")) is True


async def test_a_request_that_gives_up_takes_nobody_with_it(ledger: Ledger) -> None:
    writer = writer_of(ledger)
    ledger.open.clear()
    tasks = [asyncio.create_task(writer.store(event(key))) for key in "abc"]
    await asyncio.sleep(0.01)  # all three are in the batch
    later = asyncio.create_task(writer.store(event("later")))
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    later.cancel()
    await asyncio.sleep(0.01)
    ledger.open.set()
    assert [await tasks[0], await tasks[2]] == [True, True]
    await writer.close()
    assert ledger.stored == {"a", "b", "c"}  # too late for b; nobody waited for the other any more


async def test_too_many_are_refused_at_once(ledger: Ledger) -> None:
    writer = writer_of(ledger, max_waiting=2)
    ledger.open.clear()
    committing = asyncio.create_task(writer.store(event("a")))
    await asyncio.sleep(0.01)
    waiting = [asyncio.create_task(writer.store(event(key))) for key in "bc"]
    await asyncio.sleep(0.01)
    with pytest.raises(LedgerBusy):
        await asyncio.wait_for(writer.store(event("d")), 0.1)
    ledger.open.set()
    assert await asyncio.gather(committing, *waiting) == [True, True, True]


async def test_a_ledger_that_hangs_is_not_waited_for(ledger: Ledger) -> None:
    writer = writer_of(ledger, timeout_s=0.05)
    ledger.open.clear()
    results = await store(writer, "a", "b")
    assert all(isinstance(result, TemporaryError) for result in results)
    ledger.open.set()
    await writer.close()
    assert await writer.store(event("c")) is True


async def test_closing_waits_for_the_commit(ledger: Ledger) -> None:
    writer = writer_of(ledger)
    await writer.close()
    task = asyncio.create_task(writer.store(event("a")))
    await asyncio.sleep(0)
    await writer.close()
    assert ledger.stored == {"a"}
    assert await task
