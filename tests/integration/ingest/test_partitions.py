"""Generations by day: made ahead, found again, dropped whole, and nothing refused or lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from services.ingest.partitions import LOCK, Part, Partitions, parts
from services.ingest.repository import Repository
from services.ingest.retention import Retention
from shared.contracts.generation import Generation
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import HEADERS, Room

TABLES = "SELECT tableoid::regclass::text AS part, generation_id FROM generations ORDER BY generation_id"


def midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


async def made_on(room: Room, day: datetime) -> Part:
    """The table of a day that is over."""
    part = Part(midnight(day))
    async with room.sessions.begin() as session:
        if part not in await parts(session):
            await session.execute(text(part.creation))
    return part


async def recorded(room: Room, at: datetime, **changes: Any) -> Generation:
    """A generation of that time, recorded then."""
    generation = make_generation(created_at=at, prompt=fim_prompt(f"{at} = "), **changes)
    await room.generated(generation)
    async with room.sessions.begin() as session:
        query = text("UPDATE generations SET recorded_at = :at WHERE generation_id = :id")
        await session.execute(query, {"at": at, "id": generation.generation_id})
    return generation


async def tables(room: Room) -> dict[str, str]:
    """Table of each generation by id."""
    return {row.generation_id: row.part for row in await room.rows(TABLES)}


async def exists(room: Room, part: Part) -> bool:
    return await room.value(f"SELECT to_regclass('{part.table}')") is not None


async def test_each_goes_to_its_day_and_what_has_none_is_kept_all_the_same(room: Room) -> None:
    now = datetime.now(UTC)
    today, far = make_generation(), make_generation(created_at=now + timedelta(days=400))
    old = make_generation(request_id="cmpl-00112233445566778899aabbccddeeff")
    await room.generated(today, far, old)
    assert await tables(room) == {
        today.generation_id: Part(midnight(today.created_at)).table,
        far.generation_id: "generations_other",
        old.generation_id: "generations_untimed",
    }


async def test_the_same_generation_twice_is_one_wherever_it_is(room: Room) -> None:
    far = make_generation(created_at=datetime.now(UTC) + timedelta(days=400))
    await room.generated(far, make_generation(), far)
    await room.generated(far)
    assert await room.value("SELECT count(*) FROM generations") == 2


async def test_days_are_made_ahead_once_by_whoever_comes_first(room: Room) -> None:
    room.clock.advance(10 * 86_400)
    several = [Partitions(room.sessions, room.clock) for _ in range(3)]
    assert sum(await asyncio.gather(*(one.step() for one in several))) <= 8
    while await several[0].step():
        pass
    async with room.sessions() as session:
        days = {part.day for part in await parts(session)}
    today = midnight(room.clock())
    assert {today + timedelta(days=number) for number in range(8)} <= days


async def test_while_another_process_makes_days_none_is_made(room: Room) -> None:
    room.clock.advance(40 * 86_400)
    async with room.sessions.begin() as session:
        await session.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        assert await Partitions(room.sessions, room.clock).step() == 0
    assert await Partitions(room.sessions, room.clock).step() == 8


async def test_a_day_whose_generations_came_before_its_table_goes_without_one(room: Room) -> None:
    room.clock.advance(70 * 86_400)
    await room.generated(make_generation(created_at=room.clock() + timedelta(hours=25)))
    assert await Partitions(room.sessions, room.clock).step() == 7


async def test_a_day_is_dropped_when_it_is_over_for_all_with_what_refers_to_it(room: Room) -> None:
    now = datetime.now(UTC)
    old, younger = [await made_on(room, now - timedelta(days=days)) for days in (12, 9)]
    shown = await recorded(room, old.day + timedelta(hours=3))
    for hour in (1, 2, 3):
        await recorded(room, old.day + timedelta(hours=hour))
    kept = await recorded(room, younger.day)
    body = {"completion_id": shown.generation_id, "outcome": "accepted"}
    answer = await room.http.post("/v1/feedback", json=body, headers=HEADERS)
    assert answer.is_success, answer.text
    await room.work()
    assert await room.value("SELECT count(*) FROM outcomes") == 1
    loop = Retention(room.settings.model_copy(update={"retention_days": 11.0}), room.sessions, room.metrics, room.clock)
    while await loop.step():
        pass
    assert not await exists(room, old)
    assert list(await tables(room)) == [kept.generation_id]
    assert await room.value("SELECT count(*) FROM outcomes") == 0
    assert room.metric("tabwise_ingest_rows_expired_total", table="generations") == 4


async def test_no_day_is_dropped_while_a_project_keeps_it_and_others_lose_their_rows(room: Room) -> None:
    now = datetime.now(UTC)
    part = await made_on(room, now - timedelta(days=20))
    for project in ("brief", "default", "for-ever"):
        await recorded(room, part.day, project_id=project)
    settings = room.settings.model_copy(update={"retention_days": 10.0, "project_retention": {"for-ever": 0.0}})
    loop = Retention(settings, room.sessions, room.metrics, room.clock)
    while await loop.step():
        pass
    assert await exists(room, part)
    assert [row[0] for row in await room.rows("SELECT project_id FROM generations")] == ["for-ever"]


async def test_a_day_with_a_generation_that_was_recorded_late_waits_for_it(room: Room) -> None:
    now = datetime.now(UTC)
    part = await made_on(room, now - timedelta(days=12))
    await room.generated(make_generation(created_at=part.day))
    settings = room.settings.model_copy(update={"retention_days": 11.0})
    assert await Retention(settings, room.sessions, room.metrics, room.clock).step() == 0
    assert await exists(room, part)


@pytest.mark.parametrize("rendered", [False, True])
async def test_the_join_looks_into_no_day_before_its_window_and_reads_indexes_alone(room: Room, rendered: bool) -> None:
    past = await made_on(room, datetime.now(UTC) - timedelta(days=20))
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation)
    async with room.sessions() as session:
        engine, seen = (await session.connection()).sync_engine, []
        listener = lambda *found: seen.append(found[2:4])  # noqa: E731 -- statement and parameters
        event.listen(engine, "before_cursor_execute", listener)
        await Repository(session).candidates([1], timedelta(minutes=10), timedelta(seconds=2), rendered=rendered)
        event.remove(engine, "before_cursor_execute", listener)
        statement, parameters = seen[-1]
        connection = await session.connection()
        explained = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        nodes = [node for node in _nodes(explained.scalar_one()[0]["Plan"]) if _is_part(node)]
    looked_into = {node["Relation Name"] for node in nodes if node["Actual Loops"]}
    assert Part(midnight(generation.created_at)).table in looked_into
    assert past.table not in looked_into
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Bitmap Heap Scan"}


def _is_part(node: dict[str, Any]) -> bool:
    return str(node.get("Relation Name", "")).startswith("generations_")


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
