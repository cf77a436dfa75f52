"""Looking back: settled text, retention, typed-out acceptance, and outcomes of clients that send no events."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.ingest.evidence import Evidence
from services.ingest.evidence_queries import evidence_of
from services.ingest.resolver import Resolver
from services.ingest.settings import IngestSettings
from services.ingest.settling import Settling
from services.ingest.stats import read_stats
from shared.contracts.experience import Reference
from shared.contracts.generation import Generation
from shared.db.models import OutcomeRow
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room

FILE = "import math\n\n\nclass Circle:\n    def __init__(self, radius):\n        self.radius = radius\n\n"
PLACE = FILE + "    def area(self):\n        return "
BELOW = "\n\n    def circumference(self):\n        return 2 * math.pi * self.radius\n"


def asked(text: str = "math.pi", *, ago_s: float = 0.0, prompt: str | None = None, **changes: Any) -> Generation:
    """A completion that was asked for so long ago."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    return make_generation(text, prompt=prompt or fim_prompt(PLACE, BELOW), created_at=at, **changes)


def seen(now: str, *, ago_s: float = 0.0, **changes: Any) -> Generation:
    """A later request, from below: it shows what stands in the place."""
    prompt = fim_prompt(PLACE + now + BELOW + "\n    def ", "\n")
    return asked("x", ago_s=ago_s, prompt=prompt, **changes)


@pytest.fixture
def settling(room: Room) -> Settling:
    return make_settling(room)


def make_settling(room: Room, **changes: Any) -> Settling:
    settings = IngestSettings(**(room.settings.model_dump() | changes))
    return Settling(settings, room.sessions, room.metrics, room.clock)


async def look(settling: Settling) -> None:
    while await settling.look():
        pass


async def evidence(room: Room) -> Evidence:
    """Of the only outcome."""
    async with room.sessions() as session:
        row = await session.get_one(OutcomeRow, await room.value("SELECT outcome_id FROM outcomes"))
        return (await evidence_of(session, [row]))[row.outcome_id]


async def observed(room: Room, kind: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await room.rows(f"SELECT after_s, value FROM observations WHERE kind = '{kind}'")]


async def test_what_was_written_is_kept_for_every_choice_displayed_or_not(room: Room, settling: Settling) -> None:
    request = "cmpl-several"
    choices = [
        asked(text, request_id=request, choice_index=n) for n, text in enumerate(("math.pi * self.radius", "total"))
    ]
    at = choices[0].created_at
    choices = [choice.model_copy(update={"created_at": at}) for choice in choices]
    await room.generated(*choices)
    later = seen("math.pi * self.radius**2")
    await room.generated(later)
    await look(settling)
    assert await room.rows("SELECT 1 FROM observations") == []  # too soon
    room.clock.advance(70)
    await look(settling)
    rows = await room.rows("SELECT generation_id, text, value, outcome_id, observed_at FROM observations ORDER BY 1")
    assert [row.generation_id for row in rows] == [request, f"{request}-1"]
    assert {row.text for row in rows} == {"math.pi * self.radius**2"}
    assert rows[0].value > rows[1].value > 0
    assert (rows[0].outcome_id, rows[0].observed_at) == (None, later.created_at)
    assert room.metric("tabwise_ingest_observed_settled_total", found="yes") == 2


async def test_it_is_looked_again_later_and_never_for_another_key(room: Room, settling: Settling) -> None:
    await room.generated(asked(ago_s=300))
    await room.generated(seen("0", ago_s=290, key_id="key-other"), seen("1", ago_s=100))
    room.clock.advance(70)
    await look(settling)
    assert await room.rows("SELECT 1 FROM observations") == []
    room.clock.advance(600)
    await look(settling)
    assert [row.text for row in await room.rows("SELECT text FROM observations")] == ["1"]
    assert room.metric("tabwise_ingest_observed_settled_total", found="no") == 2


async def test_each_is_looked_at_once_by_whatever_process_and_after_a_restart(room: Room, settling: Settling) -> None:
    places = [asked(f"a{n}", prompt=fim_prompt(f"{PLACE}first_of_{n} + ", BELOW)) for n in range(12)]
    await room.generated(*places)
    await room.generated(
        *(asked("x", prompt=fim_prompt(f"{PLACE}first_of_{n} + a{n}{BELOW}    def ", "\n")) for n in range(12))
    )
    room.clock.advance(70)
    several = [make_settling(room, settling_batch_size=3) for _ in range(3)]
    for _ in range(4):
        await asyncio.gather(*(one.look() for one in several))
    await look(make_settling(room, settling_batch_size=5))
    assert await room.value("SELECT count(*) FROM observations WHERE value = 1") == 12
    assert await settling.look() == 0
    assert await settling.step() == 0


async def test_what_is_left_of_an_accepted_text(room: Room, settling: Settling) -> None:
    generation = asked("math.pi * self.radius**2")
    await room.generated(generation)
    await room.submit(generation)
    await room.work()
    before = await room.rows("SELECT * FROM experience")
    accepted_at = await room.value("SELECT resolves_at FROM outcomes")
    for after_s, now in ((10, "math.pi * self.radius**2"), (100, "math.pi * self.radius**2 / 2"), (500, "math.pi")):
        shown = seen(now).model_copy(update={"created_at": accepted_at + timedelta(seconds=after_s)})
        await room.generated(shown)
    for after_s in (30, 120, 600):
        room.clock.advance(after_s + 6)
        await look(settling)
    found = dict(await observed(room, "retention"))
    assert found == {30: 1.0, 120: 1.0, 600: pytest.approx(7 / 22)}
    known = await evidence(room)
    assert (known.retention, known.reversed_) == (found, False)
    assert await room.rows("SELECT * FROM experience") == before
    assert room.metric("tabwise_ingest_retention_share_count", after_s="600") == 1


async def test_an_accept_that_was_soon_removed_is_reversed(room: Room, settling: Settling) -> None:
    generation = asked()
    await room.generated(generation)
    await room.submit(generation)
    await room.work()
    await room.generated(seen("0"))
    room.clock.advance(36)
    await look(settling)
    assert await observed(room, "retention") == [(30, 0.0)]
    assert (await evidence(room)).reversed_ is True


async def test_an_accept_whose_place_is_not_seen_again_is_unknown(room: Room, settling: Settling) -> None:
    generation = asked()
    await room.generated(generation)
    await room.submit(generation)
    await room.work()
    room.clock.advance(36)
    await look(settling)
    assert await observed(room, "retention") == []
    assert room.metric("tabwise_ingest_retention_unknown_total", after_s="30") == 1


@pytest.mark.parametrize(("written", "typed"), [("math.pi * 2", True), ("self.radius", False)])
async def test_a_reject_that_was_typed_out_is_evidence(
    room: Room, settling: Settling, written: str, typed: bool
) -> None:
    generation = asked()
    await room.generated(generation)
    await room.submit(generation, accepted=False)
    await room.work()
    room.clock.advance(60)
    await room.work()  # nothing was seen within the grace
    assert (await evidence(room)).typed_out is None
    await room.generated(seen(written))
    room.clock.advance(700)
    await look(settling)
    assert await observed(room, "typed_out") == [(0, float(typed))]
    assert (await evidence(room)).typed_out is typed
    assert room.metric("tabwise_ingest_typed_out_total", typed="yes" if typed else "no") == 1


async def silent_session(room: Room, written: str = "math.pi * 2", **changes: Any) -> Generation:
    """llama.vim in use since a while: it asks, and asks again further below."""
    of = {"protocol": "llamacpp"} | changes
    generation = asked("math.pi * 2\n        # done", **of)
    await room.generated(asked("y", ago_s=900, prompt=fim_prompt("def other(self, thing):\n    return "), **of))
    await room.generated(generation)
    await room.generated(seen(written, **of))
    return generation


async def test_a_silent_client_gets_an_outcome_where_the_suggestion_was_written(room: Room, settling: Settling) -> None:
    generation = await silent_session(room)
    room.clock.advance(70)
    await look(settling)
    row = (await room.rows("SELECT state, source, generation_id, shown_text, credited_tokens FROM outcomes"))[0]
    assert (row.state, row.source, row.generation_id) == ("settled", "settled", generation.generation_id)
    assert row.shown_text == "math.pi * 2"
    assert 0 < row.credited_tokens < len(generation.token_ids)
    known = await evidence(room)
    assert (known.verdict, known.typed_out, known.settled) == ("shown", True, True)
    await look(make_settling(room))
    assert await room.value("SELECT count(*) FROM outcomes") == 1
    assert room.metric("tabwise_ingest_silent_outcomes_total") == 1
    async with room.sessions() as session:
        stats = await read_stats(session, generation.project_id)
    assert (stats.totals.shown, stats.versions) == (0, []), "nobody told that it was looked at"


async def test_its_reward_is_the_weight_of_what_was_typed_out(room: Room, settling: Settling) -> None:
    await silent_session(room)
    room.clock.advance(70)
    await look(settling)
    settings = IngestSettings(**(room.settings.model_dump() | {"reward_typed_out": 0.8}))
    assert await Resolver(settings, room.sessions, room.metrics, room.clock).step_settled() == 1
    await room.work()
    (experience,) = await room.experience()
    assert (experience.label, experience.shown_text) == ("accepted", "math.pi * 2")
    assert experience.reward == pytest.approx(0.8 * 0.75)
    assert experience.reference == Reference(kind="settled", text="math.pi * 2")
    assert room.metric("tabwise_ingest_resolved_total", label="accepted") == 0  # no part of an acceptance rate


async def test_without_a_weight_it_is_withheld(room: Room, settling: Settling) -> None:
    await silent_session(room)
    room.clock.advance(70)
    await look(settling)
    assert await room.resolver.step_settled() == 1
    await room.work()
    assert await room.experience() == []
    assert await room.value("SELECT withheld FROM experience") == "no_reward"


@pytest.mark.parametrize(
    ("written", "changes"),
    [("self.radius", {}), ("math.pi * 2", {"protocol": "openai"})],
    ids=["other text", "a protocol whose clients send events"],
)
async def test_nothing_is_said_otherwise(room: Room, settling: Settling, written: str, changes: dict[str, Any]) -> None:
    await silent_session(room, written, **changes)
    room.clock.advance(70)
    await look(settling)
    assert await room.value("SELECT count(*) FROM observations WHERE kind = 'settled'") == 1
    assert await room.value("SELECT count(*) FROM outcomes") == 0


async def test_a_client_that_has_sent_an_event_is_not_silent(room: Room, settling: Settling) -> None:
    told = asked("a", ago_s=30, prompt=fim_prompt("def told(self):\n    return "), protocol="llamacpp")
    await room.generated(told)
    await room.submit(told)
    await room.work()
    await silent_session(room)
    room.clock.advance(70)
    await look(settling)
    assert await room.value("SELECT count(*) FROM outcomes WHERE state = 'settled'") == 0


async def test_a_client_whose_events_cannot_be_joined_is_not_silent(room: Room, settling: Settling) -> None:
    await room.submit(make_generation("something else", prompt=fim_prompt("never asked ")))
    await silent_session(room)
    room.clock.advance(70)
    await look(settling)
    assert await room.value("SELECT count(*) FROM outcomes") == 0


async def test_a_client_that_has_only_begun_is_not_known_to_be_silent(room: Room, settling: Settling) -> None:
    await room.generated(asked("math.pi", protocol="llamacpp"))
    await room.generated(seen("math.pi", protocol="llamacpp"))
    room.clock.advance(70)
    await look(settling)
    assert await room.value("SELECT count(*) FROM outcomes") == 0
