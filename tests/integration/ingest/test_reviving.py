"""Events that were given up, and whose generation arrives all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from services.ingest.reviving import Made, late_keys
from services.ingest.settings import IngestSettings
from shared.contracts.generation import Generation
from tests.factories import KEY_ID, fim_prompt, make_generation
from tests.integration.ingest.conftest import HEADERS, Room


async def statuses(room: Room) -> list[tuple[str, str | None]]:
    rows = await room.rows("SELECT status, status_reason FROM feedback_events ORDER BY event_id")
    return [(row.status, row.status_reason) for row in rows]


def late(text_: str = "a + b", **changes: Any) -> Generation:
    """Made three minutes ago, and not recorded yet."""
    return make_generation(text_, created_at=datetime.now(UTC) - timedelta(minutes=3), **changes)


async def give_up(room: Room) -> None:
    await room.work()
    room.clock.advance(61)
    await room.work()


async def arrive(room: Room, generation: Generation) -> None:
    await room.generated(generation)
    await room.work()


@pytest.mark.parametrize("client", ["continue", "tabby", "own", "typed ahead"])
async def test_a_generation_that_arrives_late_is_still_joined(room: Room, client: str) -> None:
    generation = late("return a + b")
    if client == "continue":
        await room.send_continue(generation)
    elif client == "tabby":
        await room.send_tabby(generation, "select")
    elif client == "own":
        body = {"completion_id": generation.request_id, "outcome": "accepted"}
        await room.http.post("/v1/feedback", json=body, headers=HEADERS)
    else:
        typed = fim_prompt("def add(a, b):\n    return return ")
        await room.submit(generation, prompt=typed, completion="a + b", prefix=None, suffix=None)
    await give_up(room)
    assert await statuses(room) == [("unmatched", "no_generation")]
    room.clock.advance(50 * 60)
    await arrive(room, generation)
    assert await statuses(room) == [("joined", None)]
    assert len(await room.experience()) == 1
    assert room.metric("tabwise_ingest_events_revived_total") == 1


async def test_the_same_prompt_had_another_text_before(room: Room) -> None:
    await room.generated(make_generation("else"))
    generation = late("a + b")
    await room.submit(generation)
    await give_up(room)
    assert await statuses(room) == [("unmatched", "text_differs")]
    await arrive(room, generation)
    assert await statuses(room) == [("joined", None)]


async def test_what_another_keys_generation_cannot_revive(room: Room) -> None:
    await room.submit(late())
    await give_up(room)
    await arrive(room, late(key_id="key-somebody"))
    assert await statuses(room) == [("unmatched", "no_generation")]
    assert room.metric("tabwise_ingest_events_revived_total") == 0


async def test_another_late_generation_of_the_key_leaves_it_unmatched(room: Room) -> None:
    await room.submit(late())
    await give_up(room)
    await arrive(room, late("other", prompt=fim_prompt("other ")))
    await give_up(room)
    assert await statuses(room) == [("unmatched", "no_generation")]


async def test_after_an_hour_it_stays_unmatched(room: Room) -> None:
    generation = late()
    await room.submit(generation)
    await give_up(room)
    async with room.sessions.begin() as session:
        await session.execute(text("UPDATE feedback_events SET received_at = now() - interval '61 minutes'"))
    await arrive(room, generation.model_copy(update={"created_at": datetime.now(UTC) - timedelta(minutes=62)}))
    assert await statuses(room) == [("unmatched", "no_generation")]


def test_a_generation_is_late_if_an_event_may_have_been_given_up() -> None:
    now, settings = datetime.now(UTC), IngestSettings(join_grace_s=60)
    ages = {"key-1": (10, 59), "key-2": (5, 61, 300), KEY_ID: ()}
    made = [Made(key, now - timedelta(seconds=age)) for key, some in ages.items() for age in some]
    assert late_keys(made, now, settings) == {"key-2": now - timedelta(seconds=300)}
