"""What the joiner made of the events, as `GET /v1/joins` reports it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import HEADERS, Room

JOINS = "/v1/joins"


async def report(room: Room, **query: str) -> dict[str, Any]:
    answer = await room.http.get(JOINS, params=query, headers=HEADERS)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def give_up(room: Room) -> None:
    await room.work()
    room.clock.advance(61)
    await room.work()


async def test_the_report(room: Room) -> None:
    joined = make_generation("a + b")
    twins = [make_generation("f(x)", prompt=fim_prompt("x = "), tokens=cut) for cut in (["f(", "x)"], ["f", "(x)"])]
    await room.generated(joined, *twins)
    await room.send_continue(joined)
    await room.submit(twins[0])
    await room.submit(make_generation(prompt=fim_prompt("nobody asked ")))
    await room.submit(make_generation("something else"))
    await give_up(room)
    body = {"completion_id": "cmpl-unknown", "outcome": "shown"}
    await room.http.post("/v1/feedback", json=body, headers=HEADERS)
    room.clock.advance(15)
    found = await report(room)
    assert found["totals"] == {"received": 5, "joined": 1, "ambiguous": 1, "unmatched": 2, "pending": 1}
    assert found["reasons"] == {"several_generations": 1, "no_generation": 1, "text_differs": 1}
    assert (found["joined_share"], found["revivable"]) == (0.25, 1)
    assert {source["source"]: source["received"] for source in found["sources"]} == {
        "continue": 1, "rlinf": 3, "tabwise": 1
    }  # fmt: skip
    assert found["pending"]["count"] == 1
    assert found["pending"]["ages"] == {"under_10_s": 0, "under_60_s": 1, "under_600_s": 0, "from_600_s": 0}
    assert 14 < found["pending"]["oldest_age_s"] < 20


async def test_only_the_period_and_the_project(room: Room) -> None:
    await room.submit()
    room.clock.advance(5)
    assert (await report(room, since="2s"))["totals"]["received"] == 0
    assert (await report(room, project="other"))["totals"]["received"] == 0
    assert (await report(room, project="default"))["totals"]["received"] == 1
    assert (await report(room, since="2s"))["joined_share"] is None


async def test_admins_alone_may_read_it(room: Room) -> None:
    bound = {"Authorization": "Bearer bound-key"}
    assert (await room.http.get(JOINS, params={"project": "other"}, headers=bound)).status_code == 403
    assert (await room.http.get(JOINS, headers={"Authorization": "Bearer x"})).status_code == 401
    assert (await room.http.get(JOINS, params={"since": "x"}, headers=HEADERS)).json()["error"]["param"] == "since"


async def test_it_reads_the_time_from_an_index(room: Room) -> None:
    async with room.sessions() as session:
        await session.execute(text("SET LOCAL enable_seqscan = off"))
        plan = await session.scalars(
            text("EXPLAIN SELECT count(*) FROM feedback_events WHERE received_at >= now() - interval '1 hour'")
        )
        assert any("ix_feedback_events_time" in line for line in plan.all())
