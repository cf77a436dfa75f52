"""An engine that is ill: another is asked, or the client gets one clear answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.local.embedded import free_port
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import chunks, serving, text_of


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        ({"reset_after": 3}, "reset"),
        ({"garbage_after": 3}, "garbage"),
        ({"error_after": 3}, "engine_error"),
        ({"end_after": 3}, "truncated"),
    ],
)
async def test_failing_in_mid_answer(faults: dict[str, Any], kind: str) -> None:
    with FakeEngine(reply="abcdef") as engine:
        for name, value in faults.items():
            setattr(engine.faults, name, value)
        async with serving(engine.url) as gateway:
            streamed = await gateway.complete()
            whole = await gateway.complete(stream=False)
            first, second = await gateway.generations(2)
            counted = await gateway.metric("upstream_errors_total", replica=first.replica, kind=kind)
            in_flight = await gateway.metric("completions_in_flight")

    *parts, error = chunks(streamed.text)
    assert "".join(part["choices"][0]["text"] for part in parts) == "abc"
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert "[DONE]" not in streamed.text
    assert (whole.status_code, whole.headers["retry-after"]) == (503, "1")
    for generation in (first, second):
        assert (generation.finish_reason, generation.untrainable) == ("error", "engine_error")
        assert generation.text == "abc"
    assert (counted, in_flight) == (2, 0)


@pytest.mark.parametrize(
    "faults", [{"status": 500}, {"status": 401}, {"reset_before_headers": True}, {"reset_after": 0}]
)
async def test_failing_before_the_first_token(faults: dict[str, Any]) -> None:
    with FakeEngine(reply="ok") as engine:
        for name, value in faults.items():
            setattr(engine.faults, name, value)
        async with serving(engine.url) as gateway:
            for stream in (True, False):
                response = await gateway.complete(stream=stream)
                assert (response.status_code, response.headers["retry-after"]) == (503, "1")
                assert "overloaded" not in response.text
                assert "429" not in response.text
            assert await gateway.metric("completions_in_flight") == 0


async def test_an_engine_that_is_not_there() -> None:
    async with serving(f"http://127.0.0.1:{free_port()}") as gateway:
        response = await gateway.complete()

        assert response.status_code == 503
        assert (await gateway.client.get("/ready")).status_code == 503
        assert (await gateway.client.get("/health")).status_code == 200


async def test_another_replica_takes_over() -> None:
    with FakeEngine(reply="ok") as good, FakeEngine(reply="no") as bad:
        bad.faults.reset_before_headers = True
        async with serving(f"http://127.0.0.1:{free_port()}", bad.url, good.url) as gateway:
            answers = [await gateway.complete() for _ in range(5)]
            generations = await gateway.generations(5)

    assert [text_of(answer.text) for answer in answers] == ["ok"] * 5
    assert {f"http://{generation.replica}" for generation in generations} == {good.url}
    assert len(bad.requests) in (0, 2, 4), "each reset is answered by one more try on a fresh connection"


async def test_replicas_share_the_load() -> None:
    with FakeEngine(reply="abc") as one, FakeEngine(reply="abc") as other:
        one.faults.token_delay_s = other.faults.token_delay_s = 0.05
        async with serving(one.url, other.url, replica_affinity_slack=0) as gateway:
            await asyncio.gather(*(gateway.complete() for _ in range(10)))

    assert len(one.requests) == len(other.requests) == 5


async def test_a_restarted_engine_is_found_again() -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url) as gateway:
            assert (await gateway.complete()).status_code == 200
            engine.restart()
            assert (await gateway.complete()).status_code == 200


async def test_the_first_token_is_not_awaited_for_ever() -> None:
    with FakeEngine(reply="ok") as engine:
        engine.faults.first_token_delay_s = 5
        async with serving(engine.url, engine_first_token_timeout_s=0.2) as gateway:
            response = await gateway.complete()

    assert response.status_code == 503
    assert len(engine.requests) == 1


async def test_a_completion_has_a_time_limit() -> None:
    with FakeEngine(reply="x" * 60) as engine:
        engine.faults.token_delay_s = 0.05
        async with serving(engine.url, engine_total_timeout_s=0.4) as gateway:
            response = await gateway.complete()
            (generation,) = await gateway.generations(1)

    assert "error" in chunks(response.text)[-1]
    assert (generation.finish_reason, generation.untrainable) == ("error", "engine_error")


async def test_an_engine_that_aborts_ends_the_answer() -> None:
    with FakeEngine(reply="x" * 60) as engine:
        engine.faults.token_delay_s = 0.02
        async with serving(engine.url) as gateway:
            running = asyncio.create_task(gateway.complete())
            await asyncio.sleep(0.2)
            await gateway.client.post(f"{engine.url}/pause?mode=abort")
            response = await running
            (generation,) = await gateway.generations(1)

    assert chunks(response.text)[-1]["choices"][0]["finish_reason"] == "abort"
    assert (generation.finish_reason, generation.client_gone, generation.untrainable) == ("abort", False, None)
