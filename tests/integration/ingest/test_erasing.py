"""What is deleted when its time is over, and when somebody asks for it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from sqlalchemy.exc import IntegrityError
from typer.testing import CliRunner, Result

from services.ingest.forget import main as forget_command
from services.ingest.forgetting import Forgetting
from services.ingest.retention import Retention
from services.ingest.settings import IngestSettings
from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.db.models import TrainedExperienceRow, TrainingRoundRow
from shared.streams import Entry
from tests.factories import KEY_ID, fim_prompt, make_generation, rlinf_event
from tests.integration.ingest.conftest import HEADERS, Room

TABLES = ("generations", "feedback_events", "outcomes", "outbox", "rewards", "observations")
DAY_S = 86_400.0
SECOND = "second-key"


async def counts(room: Room, *tables: str) -> dict[str, int]:
    return {table: await room.value(f"SELECT count(*) FROM {table}") for table in tables or TABLES}


def untimed() -> str:
    """An id of before ids told their time: its generation is in no day's table."""
    return f"cmpl-{uuid.uuid4().hex}"


async def accepted(room: Room, number: int, secret: str | None = None, **changes: Any) -> str:
    """One generation that was accepted and handed over; its experience id."""
    generation = make_generation("a + b", prompt=fim_prompt(f"x{number} = "), **({"request_id": untimed()} | changes))
    await room.generated(generation)
    headers = {"Authorization": f"Bearer {secret}"} if secret else HEADERS
    answer = await room.http.post("/api/training/submit", json=rlinf_event(generation), headers=headers)
    assert answer.is_success, answer.text
    await room.work()
    query = f"SELECT experience_id FROM experience WHERE generation_id = '{generation.generation_id}'"
    return str(await room.value(query))


async def aged(room: Room, days: float, where: str = "true") -> None:
    """What was recorded now was recorded so long ago."""
    async with room.sessions.begin() as session:
        connection = await session.connection()
        for table, column in (("generations", "recorded_at"), ("feedback_events", "received_at")):
            await connection.exec_driver_sql(f"UPDATE {table} SET {column} = now() - interval '{days} d' WHERE {where}")


def retention(room: Room, **changes: Any) -> Retention:
    settings: IngestSettings = room.settings.model_copy(update=changes)
    return Retention(settings, room.sessions, room.metrics, room.clock)


async def until_nothing_is_due(loop: Retention) -> int:
    rows = 0
    while done := await loop.step():
        rows += done
    return rows


async def test_what_is_older_than_its_project_may_keep_it_goes_with_all_that_refers_to_it(room: Room) -> None:
    for number in range(5):
        await accepted(room, number)
    await room.submit(None)  # joins nothing
    await aged(room, 91)
    await accepted(room, 9)
    before = await counts(room)
    assert (before["generations"], before["feedback_events"], before["outbox"]) == (6, 7, 6)
    assert await until_nothing_is_due(retention(room, retention_batch_size=2)) == 5 * 4 + 1
    after = await counts(room)
    assert after == {
        "generations": 1, "feedback_events": 1, "outcomes": 1, "outbox": 1, "rewards": before["rewards"],
        "observations": 0,
    }  # fmt: skip
    assert (await counts(room, "experience"))["experience"] == 6  # no code, and tells who learned from whom
    assert room.metric("tabwise_ingest_rows_expired_total", table="generations") == 5
    await room.work()


async def test_each_project_has_a_time_of_its_own(room: Room) -> None:
    for number, project in enumerate(("brief", "default", "for-ever", "default")):
        request_id = untimed()
        await room.generated(make_generation(prompt=fim_prompt(f"{number}"), project_id=project, request_id=request_id))
    await aged(room, 10)
    own = {"brief": 7.0, "for-ever": 0.0}
    loop = retention(room, retention_days=30, project_retention=own, retention_batch_size=1)
    assert await until_nothing_is_due(loop) == 1
    room.clock.advance(21 * DAY_S)
    assert await until_nothing_is_due(loop) == 2
    left = await room.rows("SELECT project_id FROM generations")
    assert [row.project_id for row in left] == ["for-ever"]
    room.clock.advance(9000 * DAY_S)
    assert await until_nothing_is_due(retention(room, retention_days=0, project_retention=own)) == 0


@pytest.mark.parametrize("wrong", ["30", '{"team-a": "x"}', '{"team-a": -1}', "{", '{"team-a": true}'])
def test_a_wrong_time_is_named(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_PROJECT_RETENTION", wrong)
    with pytest.raises(ValueError, match="must be JSON like"):
        IngestSettings()
    monkeypatch.setenv("TABWISE_PROJECT_RETENTION", '{"team-a": 30}')
    assert IngestSettings().project_retention == {"team-a": 30}


async def trained(room: Room, version: int, *experience_ids: str) -> None:
    """A round has committed a checkpoint with these."""
    now = datetime.now(UTC)
    async with room.sessions.begin() as session:
        times = {"started_at": now, "committed_at": now}
        parent, round_id = version - 1, f"round-{version}"
        row = TrainingRoundRow(round_id=round_id, version=version, parent_version=parent, **times)
        row.minibatches, row.trained, row.stats = 1, len(experience_ids), {}
        session.add(row)
        await session.flush()
        for experience_id in experience_ids:
            session.add(TrainedExperienceRow(experience_id=experience_id, round_id=round_id, disposition="trained"))


def invoke(room: Room, monkeypatch: pytest.MonkeyPatch, *arguments: str, answer: str = "") -> Any:
    monkeypatch.setenv("TABWISE_DATABASE_URL", room.settings.database_url)
    monkeypatch.setenv("TABWISE_REDIS_URL", room.settings.redis_url)
    command = typer.Typer()
    command.command()(forget_command)
    return asyncio.to_thread(CliRunner().invoke, command, list(arguments), input=answer)


async def test_a_key_is_forgotten_and_the_versions_that_learned_from_it_are_named(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = [await accepted(room, number) for number in range(3)]
    other = await accepted(room, 7, SECOND, key_id=await second_key_id(room))
    await trained(room, 4, first, other)
    await trained(room, 6, second)
    await room.submit(None)  # joins nothing
    await room.emit(make_generation(prompt="waits"), make_generation(prompt="waits too", key_id="somebody"))
    (waiting,) = await dead_of(room)

    asked: Result = await invoke(room, monkeypatch, KEY_ID, answer="n\n")
    assert asked.exit_code == 2
    assert "v4, v6; every later one builds on v4" in asked.output
    assert (await counts(room, "generations"))["generations"] == 4

    done: Result = await invoke(room, monkeypatch, KEY_ID, "--yes")
    assert done.exit_code == 0, done.output
    assert "v4, v6" in done.output
    left = await counts(room, *TABLES[:4], "experience", "trained_experience")
    assert left == {
        "generations": 1, "feedback_events": 1, "outcomes": 1, "outbox": 1, "experience": 1, "trained_experience": 3,
    }  # fmt: skip
    assert await room.streams.length(STREAM_GENERATIONS) == 1
    assert [one.experience_id for one in await room.experience()] == [other]
    assert await dead_of(room) == []

    again: Result = await invoke(room, monkeypatch, KEY_ID, "--yes")
    assert again.exit_code == 0
    assert "v4, v6" in again.output  # it was written down
    assert "nothing is kept" in again.output
    assert await room.value("SELECT count(*) FROM forgotten_keys") == 1
    assert waiting


async def second_key_id(room: Room) -> str:
    """As the key ring calls it."""
    answer = await room.http.post(
        "/api/training/submit", json=rlinf_event(), headers={"Authorization": f"Bearer {SECOND}"}
    )
    assert answer.is_success
    key_id = str(await room.value("SELECT key_id FROM feedback_events ORDER BY event_id DESC LIMIT 1"))
    async with room.sessions.begin() as session:
        await (await session.connection()).exec_driver_sql("DELETE FROM feedback_events WHERE outcome_id IS NULL")
    return key_id


async def dead_of(room: Room) -> list[str]:
    """Dead letters of the first key; one is made if there are none yet."""
    if not await room.value("SELECT count(*) FROM forgotten_keys"):
        (entry_id,) = await room.streams.append(STREAM_EXPERIENCE, [b'{"key_id": "' + KEY_ID.encode() + b'"}'])
        entry = Entry(entry_id, b'{"key_id": "' + KEY_ID.encode() + b'"}')
        await room.streams.ensure_group(STREAM_EXPERIENCE, "trainer")
        await room.streams.dead_letter(STREAM_EXPERIENCE, "trainer", entry, "invalid")
    return [letter.entry_id for letter in await room.streams.dead_letters(STREAM_EXPERIENCE)]


async def test_forgetting_goes_on_where_it_was_interrupted(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.ingest.forgetting.BATCH", 2)
    ids = [await accepted(room, number) for number in range(5)]
    await trained(room, 3, *ids)
    forgetting = Forgetting(KEY_ID, room.sessions, room.streams)
    calls = 0
    batch = forgetting._generation_batch

    async def interrupted() -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return await batch()

    monkeypatch.setattr(forgetting, "_generation_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        await forgetting.forget()
    assert (await counts(room, "generations"))["generations"] == 3
    found = await Forgetting(KEY_ID, room.sessions, room.streams).forget()
    assert found.versions == [3]
    assert sum((await counts(room, *TABLES, "experience")).values()) == 0


async def test_everything_goes_on_working_beside_it(room: Room) -> None:
    """New feedback arrives, is joined and resolved while the key is being forgotten."""
    for number in range(20):
        await accepted(room, number)

    async def busy() -> None:
        for number in range(20, 40):
            generation = make_generation(prompt=fim_prompt(f"x{number} = "))
            await room.generated(generation)
            await room.submit(generation)
            with suppress(IntegrityError):  # its generation went as it was being joined: the loop would try again
                await room.work()

    forgetting = Forgetting(KEY_ID, room.sessions, room.streams)
    work = asyncio.create_task(busy())
    while not work.done():
        await forgetting.forget()
        await asyncio.sleep(0.01)
    await work
    await forgetting.forget()
    assert sum((await counts(room, *TABLES, "experience")).values()) == 0
