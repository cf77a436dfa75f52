"""Every way in which a replica can be ill, alone and beside others: no completion is lost that another could serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.fakes.engine import FakeEngine, Faults
from tests.integration.gateway.support import Gateway, chunks, eventually, serving, text_of

QUICK: dict[str, Any] = {"engine_try_timeout_s": 0.3, "engine_first_token_timeout_s": 1.0, "engine_gap_timeout_s": 0.3}
BEFORE: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "502": {"status": 502},
    "503": {"status": 503},
    "429": {"status": 429},
    "reset": {"reset_before_headers": True},
    "stall": {"stall_before_headers": True},
    "garbage": {"garbage_before_headers": True},
    "reset after headers": {"reset_after": 0},
    "stall after headers": {"stall_after": 0},
    "garbage after headers": {"garbage_after": 0},
    "half a chunk": {"half_chunk_after": 0},
    "error event": {"error_after": 0},
    "end": {"end_after": 0},
}
AFTER: dict[str, tuple[dict[str, Any], str]] = {
    "reset": ({"reset_after": 2}, "reset"),
    "stall": ({"stall_after": 2}, "gap_timeout"),
    "garbage": ({"garbage_after": 2}, "garbage"),
    "half a chunk": ({"half_chunk_after": 2}, "reset"),
    "error event": ({"error_after": 2}, "engine_error"),
    "end": ({"end_after": 2}, "truncated"),
}
before = pytest.mark.parametrize("fault", BEFORE.values(), ids=BEFORE)
after = pytest.mark.parametrize(("fault", "kind"), AFTER.values(), ids=AFTER)
streamed = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FakeEngine(reply="abcdef")) for _ in range(3)]


def text(answer: Any, stream: bool) -> str:
    assert answer.status_code == 200, answer.text
    return text_of(answer.text) if stream else str(answer.json()["choices"][0]["text"])


async def for_many_files(gateway: Gateway, stream: bool, count: int = 6) -> list[str]:
    """At once, so that every replica is somebody's first choice."""
    asked = [gateway.complete(prompt=f"# file {index}\n", stream=stream) for index in range(count)]
    return [text(answer, stream) for answer in await asyncio.gather(*asked)]


@before
@streamed
@pytest.mark.parametrize("ill", [1, 2], ids=["one of two", "two of three"])
async def test_before_the_first_token_another_takes_over(
    engines: list[FakeEngine], fault: dict[str, Any], stream: bool, ill: int
) -> None:
    for engine in engines[:ill]:
        engine.faults = Faults(**fault)
    async with serving(*(engine.url for engine in engines[: ill + 1]), **QUICK) as gateway:
        assert await for_many_files(gateway, stream) == ["abcdef"] * 6
        recorded = await gateway.generations(6)
        assert await gateway.metric("completions_in_flight") == 0
        for engine in engines[: ill + 1]:
            name = engine.url.removeprefix("http://")
            assert await gateway.metric("replica_in_flight", replica=name) == 0

    assert {f"http://{generation.replica}" for generation in recorded} == {engines[ill].url}
    assert {generation.finish_reason for generation in recorded} == {"stop"}


@before
@streamed
async def test_a_single_one_is_answered_for_in_time(
    engines: list[FakeEngine], fault: dict[str, Any], stream: bool
) -> None:
    engine = engines[0]
    engine.faults = Faults(**fault)
    async with serving(engine.url, **QUICK) as gateway:
        began = time.monotonic()
        answer = await gateway.complete(stream=stream)
        assert time.monotonic() - began < 5
        engine.faults = Faults()
        assert text(await gateway.complete(stream=stream), stream) == "abcdef"

    busy, slow = fault.get("status") == 429, "stall_after" in fault or "stall_before_headers" in fault
    code = "engine_busy" if busy else "engine_timeout" if slow else "engine_unavailable"
    assert (answer.status_code, answer.json()["error"]["code"]) == (429 if busy else 503, code)
    assert answer.headers["retry-after"] == "1"
    assert "overloaded" not in answer.text
    assert "429" not in answer.text


@after
async def test_after_the_first_byte_nobody_else_is_asked(
    engines: list[FakeEngine], fault: dict[str, Any], kind: str
) -> None:
    for engine in engines:
        engine.faults = Faults(**fault)
    async with serving(*(engine.url for engine in engines), **QUICK) as gateway:
        answer = await gateway.complete()
        (generation,) = await gateway.generations(1)
        assert await gateway.metric("upstream_errors_total", replica=generation.replica, kind=kind) == 1

    *parts, error = chunks(answer.text)
    assert "".join(part["choices"][0]["text"] for part in parts) == "ab"
    assert error["error"]["code"] == ("engine_timeout" if kind == "gap_timeout" else "engine_failed")
    assert sum(len(engine.requests) for engine in engines) == 1
    assert (generation.text, generation.finish_reason, generation.untrainable) == ("ab", "error", "engine_error")


@after
@pytest.mark.parametrize("ill", [1, 2], ids=["one of two", "two of three"])
async def test_a_whole_answer_has_no_first_byte_until_its_end(
    engines: list[FakeEngine], fault: dict[str, Any], kind: str, ill: int
) -> None:
    for engine in engines[:ill]:
        engine.faults = Faults(**fault)
    async with serving(*(engine.url for engine in engines[: ill + 1]), **QUICK) as gateway:
        assert await for_many_files(gateway, stream=False) == ["abcdef"] * 6
        recorded = await gateway.generations(6)
        assert (await gateway.metric("retries_total", kind=kind) or 0) >= 1

    assert {(generation.text, generation.finish_reason) for generation in recorded} == {("abcdef", "stop")}
    assert {f"http://{generation.replica}" for generation in recorded} == {engines[ill].url}


@after
async def test_a_whole_answer_of_a_single_one_that_breaks_off(
    engines: list[FakeEngine], fault: dict[str, Any], kind: str
) -> None:
    engines[0].faults = Faults(**fault)
    async with serving(engines[0].url, **QUICK) as gateway:
        answer = await gateway.complete(stream=False)
        (generation,) = await gateway.generations(1)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (generation.text, generation.untrainable) == ("ab", "engine_error")


@streamed
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_idle_connections_that_are_closed_just_as_a_request_comes(
    engines: list[FakeEngine], stream: bool, count: int
) -> None:
    for engine in engines:
        engine.faults.reset_if_reused = True
    async with serving(*(engine.url for engine in engines[:count]), **QUICK) as gateway:
        for _ in range(5):
            assert text(await gateway.complete(stream=stream), stream) == "abcdef"
        for engine in engines[:count]:
            name = engine.url.removeprefix("http://")
            assert await gateway.metric("replica_up", replica=name) == 1


async def test_all_busy_is_said_at_once(engines: list[FakeEngine]) -> None:
    for engine in engines:
        engine.faults.status = 429
    async with serving(*(engine.url for engine in engines)) as gateway:
        began = time.monotonic()
        answer = await gateway.complete()
        assert time.monotonic() - began < 2
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["code"] == "engine_busy"
        for engine in engines:
            name = engine.url.removeprefix("http://")
            assert await gateway.metric("replica_up", replica=name) == 1, "busy is not ill"

        engines[0].faults.status = 500
        assert (await gateway.complete()).status_code == 503


async def test_a_slow_one_is_asked_again_where_nobody_else_can(engines: list[FakeEngine]) -> None:
    slow, ill = engines[:2]
    slow.faults.first_token_delay_s, ill.faults.status = 0.5, 500
    async with serving(slow.url, ill.url, engine_try_timeout_s=0.2) as gateway:
        for index in range(3):
            assert text(await gateway.complete(prompt=f"# {index}"), True) == "abcdef"


async def test_a_refusal_is_the_clients_own_and_nobody_else_is_asked(engines: list[FakeEngine]) -> None:
    async with serving(*(engine.url for engine in engines)) as gateway:
        answer = await gateway.complete(prompt="x" * 3000)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert sum(len(engine.requests) for engine in engines) == 1


async def test_a_dead_replica_is_taken_out_before_a_user_meets_it_and_let_back(engines: list[FakeEngine]) -> None:
    dead = engines[0]
    name = dead.url.removeprefix("http://")
    dead.stop()
    async with serving(*(engine.url for engine in engines), probe_interval_s=0.05) as gateway:

        async def up(value: float) -> bool:
            return await gateway.metric("replica_up", replica=name) == value

        await eventually(lambda: up(0))
        assert await for_many_files(gateway, stream=True) == ["abcdef"] * 6
        assert await gateway.metric("retries_total", kind="connect") is None
        assert await gateway.metric("replica_ejections_total", replica=name, kind="probe") == 1
        dead.start()
        await eventually(lambda: up(1))
        await for_many_files(gateway, stream=True, count=30)

    assert dead.requests


async def test_a_slow_reader_is_not_the_engines_fault(engines: list[FakeEngine]) -> None:
    """The gap counts while the engine is waited for, not while a client's buffers are full."""
    engine = engines[0]
    engine.reply = "x" * 400
    async with serving(engine.url, engine_gap_timeout_s=0.3, max_completion_tokens=400) as gateway:
        body = {"model": "m", "prompt": "p", "stream": True, "max_tokens": 400}
        async with gateway.client.stream("POST", "/v1/completions", json=body) as response:
            received = ""
            async for piece in response.aiter_text():
                received += piece
                if len(received) < 2000:
                    await asyncio.sleep(0.4)

    assert text_of(received) == "x" * 400
