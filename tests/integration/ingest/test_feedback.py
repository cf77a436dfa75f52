"""Our own feedback API: from `POST /v1/feedback` to experience, each event once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from services.ingest.app import create_app
from services.ingest.settings import IngestSettings
from shared.contracts.experience import Experience, Reference
from shared.contracts.generation import Generation
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import HEADERS, Room

FEEDBACK = "/v1/feedback"


def about(generation: Generation, outcome: str | None = "accepted", **changes: Any) -> dict[str, Any]:
    names = {"completion_id": generation.request_id, "choice_index": generation.choice_index}
    return names | ({} if outcome is None else {"outcome": outcome}) | changes


async def send(room: Room, body: dict[str, Any], **headers: str) -> httpx.Response:
    return await room.http.post(FEEDBACK, json=body, headers=HEADERS | headers)


async def told(room: Room, *bodies: dict[str, Any]) -> list[Experience]:
    """Everything that becomes of these events, long after they were sent."""
    for body in bodies:
        answer = await send(room, body)
        assert answer.status_code == 200, answer.text
        await room.work()
    for _ in range(2):
        room.clock.advance(60)
        await room.work()
    return await room.experience()


async def served(room: Room, text: str = "a + b", **changes: Any) -> Generation:
    generation = make_generation(text, **changes)
    await room.generated(generation)
    return generation


async def test_an_accept(room: Room) -> None:
    generation = await served(room)
    answer = await send(room, about(generation, language="Python"))
    assert answer.status_code == 200
    assert answer.json() | {"event_id": ""} == {
        "event_id": "",
        "completion_id": generation.request_id,
        "choice_index": 0,
        "status": "stored",
    }
    assert await room.value("SELECT count(*) FROM feedback_events") == 1
    await room.work()
    (experience,) = await room.experience()
    assert (experience.generation_id, experience.label, experience.reward) == (
        generation.generation_id,
        "accepted",
        0.75,
    )
    assert (experience.language, await room.value("SELECT language FROM outcomes")) == ("python", "python")
    assert room.metric("tabwise_ingest_events_total", source="tabwise", verdict="accepted") == 1
    assert room.metric("tabwise_ingest_requests_total", route=FEEDBACK, status="200") == 1


async def test_a_dismissal_is_a_persons(room: Room) -> None:
    (experience,) = await told(room, about(await served(room), "dismissed"))
    assert (experience.label, experience.reward, experience.reference) == ("rejected", -0.5, None)


async def test_what_was_typed_instead_is_the_reference(room: Room) -> None:
    (experience,) = await told(room, about(await served(room), "dismissed", final_text="a * b"))
    assert experience.reference == Reference(kind="edited", text="a * b")


async def test_an_edit_is_an_accept_less_what_was_changed(room: Room) -> None:
    (experience,) = await told(room, about(await served(room, "a + b"), "edited", final_text="a - b"))
    assert experience.label == "accepted"
    assert experience.reward == pytest.approx(0.75 + 0.5 * (0.8 - 1))
    assert experience.reference == Reference(kind="edited", text="a - b")
    assert await room.value("SELECT reference_kind FROM outcomes") == "edited"


async def test_a_rating_goes_with_the_verdict_and_decides_nothing_alone(room: Room) -> None:
    rated, alone = await served(room), await served(room, prompt=fim_prompt("x = "))
    (experience,) = await told(room, about(rated, None, rating=-1), about(rated), about(alone, None, rating=1))
    assert (experience.generation_id, experience.reward) == (rated.generation_id, 0.5)
    assert await room.value("SELECT count(*) FROM outcomes WHERE state = 'shown'") == 1


async def test_shown_alone_decides_nothing(room: Room) -> None:
    assert await told(room, about(await served(room), "shown")) == []


@pytest.mark.parametrize(
    ("part", "shown", "stored"),
    [
        ({"accepted_text": "return a"}, "return a", "chars"),
        ({"accepted_chars": 8}, "return a", "chars"),
        ({"accepted_text": "return a + b"}, "return a + b", "line"),
        ({"accepted_chars": 1000}, "return a + b\nprint(a)", None),
        ({"accepted_text": "return a + b\nprint(a)"}, "return a + b\nprint(a)", None),
    ],
)
async def test_a_partial_accept_credits_its_own_tokens(
    room: Room, part: dict[str, Any], shown: str, stored: str | None
) -> None:
    generation = await served(room, "return a + b\nprint(a)")
    (experience,) = await told(room, about(generation, **part))
    assert (experience.shown_text, experience.accepted_part, experience.label) == (shown, stored, "accepted")
    credited = experience.shown.credited_tokens
    offsets = generation.text_offsets
    assert credited == (len(offsets) if stored is None else sum(offset < len(shown) for offset in offsets))


async def test_the_longest_part_counts_in_whatever_order(room: Room) -> None:
    for number, order in enumerate([(3, 9, 5), (9, 5, 3)]):
        generation = await served(room, "return a + b", prompt=fim_prompt(f"{number} = "))
        for chars in order:
            await send(room, about(generation, accepted_chars=chars))
    await room.work()
    room.clock.advance(60)
    await room.work()
    assert [experience.shown_text for experience in await room.experience()] == ["return a "] * 2


async def test_a_text_that_the_completion_does_not_have_is_unmatched_at_once(room: Room) -> None:
    generation = await served(room)
    await send(room, about(generation, accepted_text="b + a"))
    await room.work()
    assert [tuple(row) for row in await room.rows("SELECT status, status_reason FROM feedback_events")] == [
        ("unmatched", "text_differs")
    ]


async def test_a_choice_and_a_display_of_ones_own(room: Room) -> None:
    first = make_generation("a")
    second = make_generation("b", request_id=first.request_id, choice_index=1)
    await room.generated(first, second)
    await told(room, about(second, display_id="d1"), about(second, "shown", display_id="d2"))
    rows = await room.rows("SELECT generation_id, client_completion_id, state FROM outcomes ORDER BY 2")
    assert [tuple(row) for row in rows] == [
        (second.generation_id, f"{first.request_id}/d1", "accepted"),
        (second.generation_id, f"{first.request_id}/d2", "shown"),
    ]


async def test_a_client_labels_only_what_was_served_to_its_key(room: Room) -> None:
    somebodys = await served(room, key_id="key-somebody")
    assert await told(room, about(somebodys), about(make_generation())) == []
    assert await room.value("SELECT count(*) FROM feedback_events WHERE status = 'unmatched'") == 2


async def test_a_batch_is_one_result_each_in_order(room: Room) -> None:
    generations = [await served(room, prompt=fim_prompt(f"x{number} = ")) for number in range(4)]
    events = [about(one, event_id=f"e{at}") for at, one in enumerate(generations)]
    answer = await send(room, {"events": events})
    results = answer.json()["results"]
    assert [(one["event_id"], one["completion_id"], one["status"]) for one in results] == [
        (f"e{at}", one.request_id, "stored") for at, one in enumerate(generations)
    ]
    await room.work()
    assert len(await room.experience()) == 4


async def test_a_large_batch(room: Room) -> None:
    events = [{"completion_id": f"cmpl-{number}", "outcome": "shown"} for number in range(500)]
    answer = await send(room, {"events": events})
    assert len(answer.json()["results"]) == await room.value("SELECT count(*) FROM feedback_events") == 500


async def test_one_wrong_event_and_nothing_is_stored(room: Room) -> None:
    right = {"completion_id": "cmpl-1", "outcome": "shown"}
    answer = await send(room, {"events": [right, right, right, right | {"rating": 2}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "events.3.rating")
    assert await room.value("SELECT count(*) FROM feedback_events") == 0


@pytest.mark.parametrize("own_id", [True, False])
async def test_the_same_key_is_the_same_answer_once(room: Room, own_id: bool) -> None:
    generations = [await served(room, prompt=fim_prompt(f"x{number} = ")) for number in range(3)]
    ids = [{"event_id": f"e{number}"} if own_id else {} for number in range(3)]
    body = {"events": [about(one) | own for one, own in zip(generations, ids, strict=True)]}
    key = {} if own_id else {"Idempotency-Key": "8e03978e"}
    answers = await asyncio.gather(*(send(room, body, **key) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert await room.value("SELECT count(*) FROM feedback_events") == 3
    assert room.metric("tabwise_ingest_events_repeated_total", source="tabwise") == 21


async def test_an_id_cannot_be_used_for_another_event(room: Room) -> None:
    generation = await served(room)
    assert (await send(room, about(generation, event_id="e"))).status_code == 200
    answer = await send(room, {"events": [about(generation, "shown"), about(generation, "dismissed", event_id="e")]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (409, "idempotency_conflict", "events.1.event_id")
    assert await room.value("SELECT count(*) FROM feedback_events WHERE NOT accepted") == 0


async def test_under_a_key_that_was_used_nothing_else_is_stored(room: Room) -> None:
    generation = await served(room)
    assert (await send(room, about(generation), **{"Idempotency-Key": "k"})).status_code == 200
    longer = {"events": [about(generation), about(generation, "shown", display_id="d")]}
    answer = await send(room, longer, **{"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (409, "Idempotency-Key")
    assert await room.value("SELECT count(*) FROM feedback_events") == 1


async def test_an_event_before_its_generation_is_recorded(room: Room) -> None:
    generation = make_generation("return a")
    await send(room, about(generation, accepted_text="return"))
    await room.work()
    await room.generated(generation)
    assert [experience.shown_text for experience in await told(room)] == ["return"]


async def test_without_the_ledger_it_is_503(clean_redis: str) -> None:
    dead = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"
    app = create_app(IngestSettings(database_url=dead, redis_url=clean_redis, api_keys="test-token"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingest") as http:
        events = [{"completion_id": f"cmpl-{number}", "outcome": "shown"} for number in range(3)]
        answer = await http.post(FEEDBACK, json={"events": events}, headers=HEADERS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ledger_unavailable")
        assert answer.headers["retry-after"]
