"""The editor against a stub gateway: what it sends, what it shows, when it hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest

from clients.developer.continue_client import Answer, ContinueEditor, Place
from clients.developer.prompts import fim_prompt
from clients.developer.stream import CompletionFailure
from clients.developer.wire import EditorSettings, Outcome
from tests.integration.clients.stub import KEY, Stub

SPEED = 50.0
PREFIX, SUFFIX, URI = "def f(x):\n    return ", "\n\nprint(1)\n", "file:///home/dev00/a.py"


@dataclass
class Desk:
    """An editor and what it reported."""

    stub: Stub
    http: aiohttp.ClientSession
    timeout_ms: int = 400
    events: list[tuple[Outcome, bool]] = field(default_factory=list)
    failures: list[CompletionFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        place = Place(self.stub.url, KEY, "machine", SPEED, EditorSettings(model_timeout_ms=self.timeout_ms))
        self.editor = ContinueEditor(
            self.http, place, lambda outcome, accepted: self.events.append((outcome, accepted)), self.failures.append
        )

    async def ask(self, prefix: str = PREFIX, patience_s: float = 5.0) -> Answer:
        return await self.editor.ask(prefix, SUFFIX, URI, patience_s)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with Stub().serve() as stub, aiohttp.ClientSession() as http:
        desk = Desk(stub, http)
        yield desk
        await desk.editor.finish()


async def test_shows_the_completion_and_debounces(desk: Desk) -> None:
    desk.stub.reply = lambda prompt: "x + 1" if prompt == fim_prompt(PREFIX, SUFFIX) else "?"
    started = asyncio.get_running_loop().time()
    answer = await desk.ask()
    assert answer.kind == "shown"
    assert answer.outcome is not None
    assert (answer.outcome.completion, answer.outcome.prompt) == ("x + 1", fim_prompt(PREFIX, SUFFIX))
    assert desk.stub.completions[0].at - started >= 0.35 / SPEED
    assert answer.outcome.time_ms >= 350 / SPEED
    assert desk.stub.completions[0].headers["api-key"] == KEY


async def test_shows_one_line_and_hangs_up_at_the_next_request_only(desk: Desk) -> None:
    desk.stub.reply = lambda _: "x + 1\n" + "y = 2\n" * 30
    desk.stub.chunk_delay_s = 0.01
    answer = await desk.ask()
    assert answer.outcome is not None
    assert answer.outcome.completion == "x + 1"
    await asyncio.sleep(0.1)
    assert desk.stub.hung_up == []
    desk.stub.reply = lambda _: ""
    await desk.ask("other = ")
    await _until(lambda: desk.stub.hung_up == [fim_prompt(PREFIX, SUFFIX)])
    assert desk.failures == []


async def test_typing_on_cancels_without_hanging_up(desk: Desk) -> None:
    desk.stub.reply = lambda _: "x"
    desk.stub.first_delay_s = 0.3
    assert (await desk.ask(patience_s=0.05)).kind == "cancelled"
    assert desk.stub.hung_up == []
    desk.stub.first_delay_s = 0.0
    assert (await desk.ask("other = ")).kind == "shown"
    await _until(lambda: len(desk.stub.hung_up) == 1)
    assert desk.failures == []


async def test_cuts_what_still_streams_at_the_processing_limit(desk: Desk) -> None:
    slow = Desk(desk.stub, desk.http, timeout_ms=20)
    desk.stub.reply = lambda _: "abc" * 40
    desk.stub.chunk_delay_s = 0.01
    answer = await slow.ask()
    assert answer.outcome is not None
    assert answer.outcome.completion == "abc" * 10
    await _until(lambda: len(desk.stub.hung_up) == 1)
    assert slow.failures == []


async def test_typing_ahead_reads_on_without_a_request(desk: Desk) -> None:
    desk.stub.reply = lambda _: "total(x) + 1"
    first = await desk.ask()
    second = await desk.ask(PREFIX + "tot")
    assert (second.kind, second.reused, len(desk.stub.completions)) == ("shown", True, 1)
    assert first.outcome is not None
    assert second.outcome is not None
    assert second.outcome.completion == "al(x) + 1"
    assert second.outcome.prompt == fim_prompt(PREFIX + "tot", SUFFIX)
    assert second.outcome.completion_id != first.outcome.completion_id


async def test_typing_otherwise_asks_anew(desk: Desk) -> None:
    desk.stub.reply = lambda _: "total(x) + 1"
    await desk.ask()
    second = await desk.ask(PREFIX + "sum")
    assert (second.reused, len(desk.stub.completions)) == (False, 2)


@pytest.mark.parametrize("text", ["", "   ", "\n", "print(1)"])
async def test_nothing_is_shown_of_nothing(desk: Desk, text: str) -> None:
    desk.stub.reply = lambda _: text
    answer = await desk.ask()
    assert (answer.kind, answer.outcome) == ("empty", None)


async def test_an_http_error_is_a_failed_completion(desk: Desk) -> None:
    desk.stub.completion_status = 503
    assert (await desk.ask()).kind == "failed"
    (failure,) = desk.failures
    assert (failure.kind, failure.status) == ("http", 503)
    assert "the engine is away" in failure.detail
    assert failure.at > 1.7e9


async def test_a_stream_without_its_end_is_a_failed_completion(desk: Desk) -> None:
    desk.stub.reply = lambda _: "x + 1"
    desk.stub.without_done = True
    assert (await desk.ask()).kind == "shown"
    assert [failure.kind for failure in desk.failures] == ["broken"]


async def test_a_reset_stream_still_shows_the_partial_text(desk: Desk) -> None:
    desk.stub.reply = lambda _: "abcdef"
    desk.stub.reset_after_chunks = 1
    answer = await desk.ask()
    assert answer.outcome is not None
    assert answer.outcome.completion == "abc"
    assert [failure.kind for failure in desk.failures] == ["broken"]


async def test_an_error_in_mid_stream_is_a_failed_completion(desk: Desk) -> None:
    desk.stub.reply = lambda _: "abcdef"
    desk.stub.error_after_chunks = 0
    assert (await desk.ask()).kind == "failed"
    assert [failure.kind for failure in desk.failures] == ["error"]


async def test_nobody_there_is_a_failed_completion(desk: Desk) -> None:
    desk.stub.url = "http://127.0.0.1:9"
    away = Desk(desk.stub, desk.http)
    assert (await away.ask()).kind == "failed"
    assert [failure.kind for failure in away.failures] == ["connection"]


async def _until(condition: Callable[[], bool], seconds: float = 2.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
