"""What is stored of code that holds secrets, and what is not learned from."""

from __future__ import annotations

import pytest

from services.ingest.recorder import Recorder
from services.ingest.settings import IngestSettings
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room

SECRET = "hunter2hunter"
PLACE = f'password = "{SECRET}"\nlogin('
TEXT_COLUMNS = (
    "SELECT g.prompt || g.text || g.token_ids::text || coalesce(e.completion, '') || coalesce(o.shown_text, '') "
    "|| coalesce(o.reference_text, '') FROM generations g LEFT JOIN feedback_events e USING (generation_id) "
    "LEFT JOIN outcomes o ON o.generation_id = g.generation_id"
)


async def test_a_secret_in_the_prompt_is_not_stored_and_the_accept_still_counts(room: Room) -> None:
    generation = make_generation("user)", prompt=fim_prompt(PLACE))
    await room.generated(generation)
    await room.send_continue(generation)
    await room.work()
    (stored,) = await room.rows(TEXT_COLUMNS)
    assert SECRET not in stored[0]
    assert "<redacted:secret-keyword>" in stored[0]
    assert await room.value("SELECT state FROM outcomes") == "accepted"
    assert await room.value("SELECT withheld FROM experience") == "contains_secret"
    assert await room.value("SELECT count(*) FROM outbox") == 0
    assert room.metric("tabwise_ingest_secrets_redacted_total", kind="secret-keyword") == 1


async def test_a_secret_that_was_displayed_is_not_stored_either(room: Room) -> None:
    generation = make_generation(SECRET, prompt=fim_prompt('password = "', '"\n'))
    await room.generated(generation)
    await room.send_continue(generation, prefix='password = "', suffix='"\n')
    await room.work()
    (stored,) = await room.rows(TEXT_COLUMNS)
    assert SECRET not in stored[0]
    assert await room.value("SELECT shown_text FROM outcomes") == "<redacted:secret-keyword>"
    assert await room.experience() == []


@pytest.fixture
def keeping(settings: IngestSettings) -> IngestSettings:
    return settings.model_copy(update={"keep_secrets_of": "other, default"})


async def test_a_project_may_keep_its_secrets(room: Room, keeping: IngestSettings) -> None:
    generation = make_generation("user)", prompt=fim_prompt(PLACE))
    await room.emit(generation)
    await Recorder(keeping, room.sessions, room.streams, room.metrics).step()
    assert SECRET in await room.value("SELECT prompt FROM generations")
    assert await room.value("SELECT untrainable FROM generations") is None
