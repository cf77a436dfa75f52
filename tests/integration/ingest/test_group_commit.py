"""Concurrent events on real PostgreSQL: one statement, each fact once, a refused row alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.ingest.intake_queries import EventToStore, InsertEvents
from services.ingest.protocols import rlinf
from services.ingest.protocols.common import Caller, FeedbackEvent
from services.ingest.writer import EventWriter
from shared.db.engine import make_async_engine
from shared.kit.errors import InvalidMessage
from tests.factories import rlinf_event
from tests.integration.ingest.conftest import HEADERS, Room

SUBMIT = "/api/training/submit"


def parsed(**changes: object) -> FeedbackEvent:
    return rlinf.parse(rlinf_event() | changes, Caller("key", "default"))


async def test_concurrent_requests_are_all_in_the_ledger(room: Room) -> None:
    bodies = [rlinf_event() for _ in range(60)] + [rlinf_event(completionId="same") for _ in range(20)]
    answers = await asyncio.gather(*(room.http.post(SUBMIT, json=body, headers=HEADERS) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    assert await room.value("SELECT count(*) FROM feedback_events") == 61
    assert room.metric("tabwise_ingest_events_total", source="rlinf", verdict="accepted") == 61
    assert room.metric("tabwise_ingest_events_repeated_total", source="rlinf") == 19


async def test_every_column_comes_back_as_it_was_sent(room: Room) -> None:
    text = 'a\\b "ü" \t\r\n 𝄞 \\x00 \\u0041'
    body = rlinf_event(completion=text, filepath=text, time=0.1, uniqueId="é\n", numLines=2**53 + 1)
    assert (await room.http.post(SUBMIT, json=body, headers=HEADERS)).status_code == 200
    (row,) = await room.rows("SELECT * FROM feedback_events")
    assert (row.completion, row.filepath, row.display_ms) == (text, text, 0.1)
    assert (row.evidence["uniqueId"], row.evidence["numLines"]) == ("é\n", 2**53 + 1)
    assert row.client_time == datetime.fromisoformat(body["timestamp"])
    assert len(row.prompt_sha256) == 32
    assert (row.status, row.kind, row.choice_index, row.named_generation_id) == ("pending", "verdict", 0, None)
    assert row.next_attempt_at == row.received_at


async def test_a_row_that_postgres_refuses_fails_alone(room: Room) -> None:
    engine = make_async_engine(room.settings.database_url)
    writer = EventWriter(InsertEvents(engine), max_waiting=100, max_batch=100, timeout_s=5)
    events = [parsed() for _ in range(7)]
    events[3] = replace(events[3], completion="a\x00b")
    now = datetime.now(UTC)
    stored = await asyncio.gather(*(writer.store(EventToStore(e, now)) for e in events), return_exceptions=True)
    await engine.dispose()
    assert isinstance(stored.pop(3), InvalidMessage)
    assert stored == [True] * 6
    assert await room.value("SELECT count(*) FROM feedback_events") == 6


@pytest.mark.parametrize("rounds", [5])
async def test_the_same_facts_from_two_processes_neither_deadlock_nor_count_twice(room: Room, rounds: int) -> None:
    engines = [make_async_engine(room.settings.database_url) for _ in range(2)]
    now = datetime.now(UTC)
    for _ in range(rounds):
        events = [EventToStore(parsed(), now) for _ in range(200)]
        first, second = await asyncio.gather(
            InsertEvents(engines[0])(events), InsertEvents(engines[1])(list(reversed(events)))
        )
        assert len(first) + len(second) == len(first | second) == 200
    for engine in engines:
        await engine.dispose()
