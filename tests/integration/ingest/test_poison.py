"""Who may label what, and who is not believed."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from clients.developer.persona import load_personas
from services.ingest.guard import Guard
from services.ingest.quarantine import app as quarantine_command
from services.ingest.settings import IngestSettings
from shared import fim
from shared.contracts.generation import Generation
from tests.factories import KEY_ID, continue_event, fim_prompt, make_generation, rlinf_event, tabby_event
from tests.integration.ingest.conftest import HEADERS, Room

OTHER = {"Authorization": "Bearer second-key"}
"""A key that is as good as the first; the gateway served it nothing."""


async def post(room: Room, path: str, body: dict[str, Any], headers: dict[str, str] = OTHER) -> None:
    answer = await room.http.post(path, json=body, headers=headers)
    assert answer.is_success, answer.text


def typed_ahead(generation: Generation) -> dict[str, Any]:
    """Continue's event about a display whose prompt was never sent: the beginning was typed in."""
    prompt = fim.insert_before_suffix(generation.prompt, "a")
    return continue_event(generation, prompt=prompt, completion=" + b")


def rendered(generation: Generation) -> dict[str, Any]:
    """An event whose prompt the gateway wrote of its prefix and suffix."""
    place = fim.parse(generation.prompt)
    assert place is not None
    return continue_event(generation, prompt="its own", prefix=place.prefix, suffix=place.suffix)


def told(generation: Generation) -> dict[str, Any]:
    """An event of our own API."""
    return {"completion_id": generation.request_id, "outcome": "accepted"}


JOINS = {
    "prompt": ("/v1/events/continue", continue_event),
    "typed ahead": ("/v1/events/continue", typed_ahead),
    "prefix and suffix": ("/v1/events/continue", rendered),
    "rlinf": ("/api/training/submit", rlinf_event),
    "named": ("/v1/events/tabby", lambda generation: tabby_event(generation, "select")),
    "our own": ("/v1/feedback", told),
}


@pytest.mark.parametrize("join", JOINS)
async def test_nobody_labels_what_the_gateway_served_to_another_key(room: Room, join: str) -> None:
    path, event = JOINS[join]
    generation = make_generation("a + b", key_id=KEY_ID, prompt=fim_prompt())
    await room.generated(generation)
    await post(room, path, event(generation))
    await room.work()
    room.clock.advance(700)
    await room.work()
    assert await room.value("SELECT count(*) FROM outcomes") == 0
    rows = await room.rows("SELECT status, status_reason FROM feedback_events")
    assert [tuple(row) for row in rows] == [("unmatched", "no_generation")]
    room.clock.ahead = timedelta()
    await post(room, path, event(generation), HEADERS)  # the same from its own key is believed
    await room.work()
    assert await room.value("SELECT key_id FROM outcomes") == KEY_ID


async def test_the_name_of_another_keys_display_changes_nothing_of_it(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    completion = await room.send_continue(generation, accepted=False)
    await room.work()
    await post(room, "/v1/events/continue", continue_event(generation, completionId=completion))
    await room.work()
    assert await room.value("SELECT state FROM outcomes") == "rejected"


async def displayed(room: Room, number: int, *, reaction_s: float, accepted: bool = True, **changes: Any) -> None:
    """One generation that ended `reaction_s` before its event arrives."""
    now = datetime.now(UTC)
    total_s = changes.get("total_s", 0.1)
    began = now - timedelta(seconds=total_s + reaction_s)
    generation = make_generation(prompt=fim_prompt(f"x{number} = "), created_at=began, **changes)
    await room.generated(generation)
    await room.send_continue(generation, accepted=accepted)


def guard(room: Room, **changes: Any) -> Guard:
    settings: IngestSettings = room.settings.model_copy(update=changes)
    return Guard(settings, room.sessions, room.metrics, room.clock)


async def test_a_key_that_accepts_everything_at_once_is_quarantined_and_released(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        await displayed(room, number, reaction_s=-0.2)
    await room.joiner.step()
    await guard(room, quarantine_min_displays=11).step()
    assert await room.value("SELECT count(*) FROM quarantined_keys") == 0
    watching = guard(room, quarantine_min_displays=10)
    await watching.step()
    await watching.step()
    assert room.metric("tabwise_ingest_keys_quarantined_total", rule="too_fast") == 1
    assert room.metric("tabwise_ingest_keys_in_quarantine") == 1
    await room.work()
    assert await room.experience() == []
    assert await room.value("SELECT count(*) FROM experience WHERE withheld = 'quarantined'") == 10
    assert await room.value("SELECT count(*) FROM outbox") == 0

    monkeypatch.setenv("TABWISE_DATABASE_URL", room.settings.database_url)
    shown = await command("list")
    assert all(part in shown for part in (KEY_ID, "too_fast", "fast 10"))
    assert "released" in await command("release", KEY_ID)
    assert "not in quarantine" in await command("release", KEY_ID)
    await watching.step()  # what it did before its release does not count any more
    assert await room.value("SELECT count(*) FROM quarantined_keys WHERE released_at IS NULL") == 0
    await displayed(room, 99, reaction_s=1.0)
    await room.work()
    assert len(await room.experience()) == 1


async def test_what_was_on_its_way_is_kept_back(room: Room) -> None:
    for number in range(10):
        await displayed(room, number, reaction_s=-0.2)
    await room.joiner.step()
    await room.resolver.step_accepted()
    await guard(room, quarantine_min_displays=10).step()
    await room.work()
    assert await room.experience() == []
    assert await room.value("SELECT count(*) FROM experience WHERE withheld = 'quarantined'") == 10


async def test_accepted_before_it_was_there(room: Room) -> None:
    for number in range(10):
        await displayed(room, number, reaction_s=-30.0, total_s=40.0, accepted=True)
        await displayed(room, 100 + number, reaction_s=1.0, accepted=False)
    await room.joiner.step()
    await guard(room).step()
    assert await room.value("SELECT rule FROM quarantined_keys") == "before_the_end"


async def test_more_accepts_than_a_team_can_make(room: Room) -> None:
    for number in range(8):
        await displayed(room, number, reaction_s=1.0)
    await room.joiner.step()
    await guard(room, quarantine_accepts_per_s=0.1).step()
    rules = await room.rows("SELECT rule FROM quarantined_keys")
    assert [row.rule for row in rules] == ["too_many"]


async def test_sixty_displays_of_the_demos_developers_are_nobodys_poison(room: Room) -> None:
    """Their real timings at speed 10: they read for some tens of milliseconds, and accept one in three."""
    rng, personas = random.Random(1), load_personas()
    for number in range(60):
        reading_s = rng.choice(personas).draw_reading_s(rng) / 10
        await displayed(room, number, reaction_s=reading_s, accepted=number % 3 == 0)
    await room.joiner.step()
    await guard(room).step()
    assert await room.value("SELECT count(*) FROM outcomes") == 60
    assert await room.value("SELECT count(*) FROM quarantined_keys") == 0


async def command(*arguments: str) -> str:
    """The command in a thread: it has an event loop of its own."""
    result = await asyncio.to_thread(CliRunner().invoke, quarantine_command, list(arguments))
    return result.output
