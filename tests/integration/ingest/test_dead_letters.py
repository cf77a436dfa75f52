"""The command that looks at dead letters and puts them back: both streams, real Redis, and no code on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from services.ingest import dead_letters
from services.ingest.dead_letters import Selection, find, harmless
from shared.contracts.names import GROUP_RECORDER, GROUP_TRAINER, STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.streams import RedisStreams
from tests.factories import make_generation

CODE = "PLANTED = 'code'"


@pytest.fixture
async def streams(clean_redis: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStreams]:
    monkeypatch.setenv("TABWISE_REDIS_URL", clean_redis)
    made = RedisStreams.from_url(clean_redis)
    await bury(made, STREAM_GENERATIONS, GROUP_RECORDER, CODE.encode(), "invalid_generation: message: json_invalid")
    await bury(made, STREAM_GENERATIONS, GROUP_RECORDER, whole(), "refused_by_database")
    await bury(made, STREAM_EXPERIENCE, GROUP_TRAINER, b"{}", "experience_id: missing")
    yield made
    await made.close()


def whole() -> bytes:
    return make_generation(CODE, request_id="cmpl-1").model_dump_json().encode()


async def bury(streams: RedisStreams, stream: str, group: str, payload: bytes, reason: str) -> None:
    await streams.ensure_group(stream, group)
    await streams.append(stream, [payload])
    (entry,) = await streams.read(stream, group, "test", count=1)
    await streams.dead_letter(stream, group, entry, reason)


def command(*arguments: str, status: int = 0) -> str:
    """In a thread of its own event loop: what it prints."""
    done = CliRunner().invoke(dead_letters.app, list(arguments))
    assert done.exit_code == status, done.output
    return done.output


async def run(*arguments: str, status: int = 0) -> str:
    return await asyncio.to_thread(command, *arguments, status=status)


async def test_the_list_tells_the_reason_and_the_stream_and_no_code(streams: RedisStreams) -> None:
    listed = await run("list")
    for word in ("invalid_generation", "refused_by_database", "experience_id: missing", "tabwise:experience"):
        assert word in listed
    assert "PLANTED" not in listed
    assert "refused_by_database" not in await run("list", "--stream", "experience")
    assert "missing" not in await run("list", "--reason", "refused")


async def test_one_is_shown_without_its_code_unless_that_is_asked_for(streams: RedisStreams) -> None:
    _, refused, _ = await find(streams, Selection())
    shown = await run("show", refused.id)
    assert "generation_id: cmpl-1" in shown
    assert "PLANTED" not in shown
    assert "PLANTED" in await run("show", refused.letter.entry_id, "--show-code")


async def test_requeueing_by_id_by_reason_and_all(streams: RedisStreams) -> None:
    first, *_ = await find(streams, Selection())
    assert "requeued: 1" in await run("requeue", first.id)
    assert await streams.length(STREAM_GENERATIONS) == 1
    assert "requeued: 1" in await run("requeue", "--reason", "refused")
    assert "requeued: 0" in await run("requeue", "--reason", "refused")
    assert "requeued: 1" in await run("requeue", "--all")
    assert await find(streams, Selection()) == []
    back = await streams.read(STREAM_GENERATIONS, GROUP_RECORDER, "test", count=10)
    assert back[0].payload == CODE.encode()
    assert "no dead letters" in await run("list")


async def test_dropping_deletes(streams: RedisStreams) -> None:
    assert "dropped: 2" in await run("drop", "--all", "--stream", "generations")
    assert [one.origin for one in await find(streams, Selection())] == ["experience"]
    assert await streams.length(STREAM_GENERATIONS) == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["requeue"], "--all"),
        (["drop"], "--all"),
        (["requeue", "generations/1-1"], "no dead letter"),
        (["list", "--stream", "cats"], "experience"),
    ],
)
async def test_what_it_cannot_do_it_says_in_a_sentence(streams: RedisStreams, arguments: list[str], word: str) -> None:
    said = await run(*arguments, status=2)
    assert word in said
    assert len(await find(streams, Selection())) == 3


async def test_a_redis_that_is_away_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_REDIS_URL", "redis://127.0.0.1:1/0")
    assert "redis" in await run("list", status=2)


def test_only_what_looks_like_an_id_is_harmless() -> None:
    assert harmless(b'{"generation_id": "def f(): pass", "key_id": "key-1", "prompt": "code"}') == {"key_id": "key-1"}
    assert harmless(b"[]") == harmless(b"{") == {}
