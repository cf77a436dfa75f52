"""What editors and SDKs get, and what is recorded of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from shared.contracts.generation import PolicySpan
from tests.fakes import toy_model
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import CONTINUE_PROMPT, chunks, eventually, serving, text_of

REPLY = "return a + b  # é日本🙂\n"


async def test_continues_request_streamed() -> None:
    with FakeEngine(reply=REPLY) as engine:
        async with serving(engine.url) as gateway:
            response = await gateway.complete()
            (generation,) = await gateway.generations(1)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("data: [DONE]\n\n")
    assert ":" not in {line[:1] for line in response.text.splitlines()}
    answer = chunks(response.text)
    assert text_of(response.text) == REPLY
    assert {chunk["id"] for chunk in answer} == {generation.request_id}
    assert {chunk["model"] for chunk in answer} == {"qwen2.5-coder-team"}
    assert answer[-1]["choices"][0]["finish_reason"] == "stop"
    for private in ("token_ids", "weight_version", "prompt_logprobs", "token_logprobs"):
        assert private not in response.text


async def test_what_was_sampled_is_recorded() -> None:
    with FakeEngine(reply=REPLY) as engine:
        async with serving(engine.url) as gateway:
            await gateway.complete(temperature=0.7)
            (generation,) = await gateway.generations(1)

    tokens = [*REPLY.encode(), toy_model.EOS]
    prompt = toy_model.encode(CONTINUE_PROMPT)
    expected = [
        float(toy_model.logprobs_V(engine.weights, [*prompt, *tokens[:t]], 0.7)[token])
        for t, token in enumerate(tokens)
    ]
    assert (generation.prompt, generation.prompt_token_ids) == (CONTINUE_PROMPT, prompt)
    assert (generation.text, generation.token_ids) == (REPLY, tokens)
    assert generation.logprobs == pytest.approx(expected)
    assert generation.text_offsets[:5] == [0, 1, 2, 3, 4]
    assert generation.text_offsets[-1] == len(REPLY)
    assert generation.policy_spans == [PolicySpan(version=0, start=0, end=len(tokens))]
    assert (generation.untrainable, generation.finish_reason, generation.client_gone) == (None, "stop", False)
    assert generation.replica == engine.url.removeprefix("http://")
    assert generation.first_token_s is not None
    assert 0 < generation.first_token_s <= generation.total_s


async def test_unstreamed_equals_streamed() -> None:
    with FakeEngine() as engine:
        async with serving(engine.url) as gateway:
            whole = (await gateway.complete(stream=False, seed=5, n=2, temperature=0.8)).json()
            streamed = (await gateway.complete(seed=5, n=2, temperature=0.8)).text
            generations = await gateway.generations(4)

    for index in (0, 1):
        assert whole["choices"][index]["text"] == text_of(streamed, index) == generations[index].text
    assert whole["id"] == generations[0].request_id
    assert generations[1].generation_id == f"{whole['id']}-1"
    assert whole["usage"]["completion_tokens"] == sum(len(generation.token_ids) for generation in generations[:2])
    assert set(whole["choices"][0]) == {"index", "text", "logprobs", "finish_reason", "stop_reason"}
    assert whole["choices"][0]["logprobs"] is None


async def test_tokens_come_when_they_are_sampled() -> None:
    with FakeEngine(reply="x" * 20) as engine:
        engine.faults.token_delay_s = 0.05
        async with (
            serving(engine.url) as gateway,
            gateway.client.stream(
                "POST",
                "/v1/completions",
                json={"model": "m", "prompt": "p", "stream": True, "stop": ["#- coding: utf-8"]},
            ) as response,
        ):
            async for line in response.aiter_lines():
                assert '"text":"x"' in line
                break
            assert engine.tokens_sampled <= 2


async def test_stop_strings_are_sampled_and_not_shown() -> None:
    with FakeEngine(reply="ab\n```\nmore") as engine:
        async with serving(engine.url) as gateway:
            response = await gateway.complete()
            (generation,) = await gateway.generations(1)

    assert text_of(response.text) == generation.text == "ab\n"
    assert bytes(generation.token_ids) == b"ab\n```"
    assert (generation.stop_reason, generation.finish_reason) == ("```", "stop")


async def test_special_tokens_end_the_text_where_the_client_says_so() -> None:
    with FakeEngine(reply="ab<|fim_pad|>junk") as engine:
        async with serving(engine.url) as gateway:
            asked = await gateway.complete()
            unasked = await gateway.complete(stop=None)

    assert text_of(asked.text) == "ab"
    assert text_of(unasked.text) == "abjunk"


async def test_usage_and_logprobs_where_asked_for() -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url) as gateway:
            response = await gateway.complete(stream_options={"include_usage": True}, logprobs=2)

    *rest, last = chunks(response.text)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert all(chunk["usage"] is None for chunk in rest)
    logprobs = [chunk["choices"][0]["logprobs"] for chunk in rest]
    assert [entry["tokens"] for entry in logprobs] == [["o"], ["k"], []]
    assert {"o"} < set(logprobs[0]["top_logprobs"][0])


async def test_merged_chunks_and_a_publish_in_mid_completion() -> None:
    with FakeEngine(reply="x" * 30) as engine:
        engine.faults.merge, engine.faults.token_delay_s = 4, 0.01
        async with serving(engine.url) as gateway:
            running = asyncio.create_task(gateway.complete())
            await eventually(lambda: engine.tokens_sampled > 9)
            async with httpx.AsyncClient(base_url=engine.url) as admin:
                await admin.post("/pause?mode=keep")
                await admin.post("/update_weight_version", json={"new_version": "7"})
                before = engine.tokens_sampled
                await asyncio.sleep(0.1)
                await admin.post("/resume")
            assert (await running).status_code == 200
            (generation,) = await gateway.generations(1)
            live = await gateway.metric("policy_version", replica=generation.replica)

    assert [span.version for span in generation.policy_spans] == [0, 7]
    assert generation.policy_spans[1].start == pytest.approx(before, abs=1)
    assert generation.policy_spans[1].end == 31
    assert generation.untrainable is None
    assert live == 7


async def test_requests_wait_for_a_paused_engine() -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url) as gateway, httpx.AsyncClient(base_url=engine.url) as admin:
            await admin.post("/pause?mode=keep")
            running = asyncio.create_task(gateway.complete())
            await asyncio.sleep(0.3)
            assert not running.done()
            await admin.post("/resume")

            assert text_of((await running).text) == "ok"


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"stamp": False}, "no_policy_version"),
        ({"logprob": None}, "bad_logprobs"),
        ({"logprob": float("nan")}, "bad_logprobs"),
        ({"logprob": 3.0}, "bad_logprobs"),
    ],
)
async def test_what_cannot_be_trained_on_is_marked(faults: dict[str, Any], reason: str) -> None:
    with FakeEngine(reply="ok") as engine:
        for name, value in faults.items():
            setattr(engine.faults, name, value)
        async with serving(engine.url) as gateway:
            response = await gateway.complete()
            (generation,) = await gateway.generations(1)
            counted = await gateway.metric("generations_untrainable_total", reason=reason)

    assert text_of(response.text) == "ok"
    assert (generation.untrainable, counted) == (reason, 1)


async def test_keys_and_projects() -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url) as gateway:
            unknown = await gateway.client.get("/v1/models", headers={"Authorization": "Bearer no"})
            by_header = await gateway.client.get("/v1/models", headers={"Authorization": "", "api-key": "test-key"})
            bound = {"Authorization": "Bearer bound"}
            body = {"model": "m", "prompt": "p"}
            wrong = await gateway.client.post("/v1/completions", json=body, headers=bound | {"X-Project-ID": "b"})
            right = await gateway.client.post("/v1/completions", json=body, headers=bound)
            (generation,) = await gateway.generations(1)

    assert (unknown.status_code, by_header.status_code, wrong.status_code, right.status_code) == (401, 200, 403, 200)
    assert by_header.json()["data"][0]["id"] == "tabwise"
    assert generation.project_id == "team-a"
    assert unknown.json()["error"]["code"] == "invalid_api_key"


async def test_a_prompt_that_is_too_long() -> None:
    with FakeEngine(max_model_len=32) as engine:
        async with serving(engine.url) as gateway:
            response = await gateway.complete(prompt="x" * 100)
            clamped = await gateway.complete(prompt="x" * 30, stream=False)
            generations = await gateway.generations(1)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")
    assert clamped.json()["usage"]["completion_tokens"] <= 2
    assert len(generations) == 1


async def test_bad_bodies() -> None:
    with FakeEngine() as engine:
        async with serving(engine.url, max_body_bytes=2000) as gateway:

            async def post(content: bytes) -> httpx.Response:
                return await gateway.client.post("/v1/completions", content=content)

            async def slowly() -> Any:
                for _ in range(30):
                    yield b" " * 100

            large = await post(b" " * 3000)
            chunked = await gateway.client.post("/v1/completions", content=slowly())
            broken = await post(b'{"model": ')
            surrogate = await post(b'{"model": "m", "prompt": "\\ud800"}')
            counted = await gateway.metric("requests_total", status="422", stream="false")

    assert (large.status_code, chunked.status_code, broken.status_code) == (413, 413, 422)
    assert surrogate.status_code == 422
    assert all("message" in response.json()["error"] for response in (large, chunked, broken))
    assert counted == 2
    assert engine.requests == []


async def test_probes_and_metrics() -> None:
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url) as gateway:
            await gateway.complete()
            await gateway.generations(1)
            assert (await gateway.client.get("/health")).status_code == 200
            assert (await gateway.client.get("/ready")).status_code == 200
            engine.faults.unhealthy = True
            assert (await gateway.client.get("/ready")).status_code == 503
            engine.faults.unhealthy = False
            assert await gateway.metric("requests_total", status="200", stream="true") == 1
            assert await gateway.metric("first_token_seconds_count", version="0") == 1
            assert await gateway.metric("choices_total", outcome="suggested") == 1
            assert await gateway.metric("completions_in_flight") == 0
            assert await gateway.metric("tokens_total", kind="sampled") == 3
            text = (await gateway.client.get("/metrics")).text

    assert "def add" not in text
    assert "test-key" not in text


async def test_the_openapi_page_describes_the_body() -> None:
    async with serving("http://127.0.0.1:9") as gateway:
        schema = (await gateway.client.get("/openapi.json")).json()

    assert "prompt" in json.dumps(schema["paths"]["/v1/completions"]["post"]["requestBody"])


async def test_many_at_once() -> None:
    with FakeEngine(reply="return x\n") as engine:
        async with serving(engine.url) as gateway:
            answers = await asyncio.gather(*(gateway.complete() for _ in range(100)))
            generations = await gateway.generations(100)

    assert {text_of(answer.text) for answer in answers} == {"return x\n"}
    assert len({generation.generation_id for generation in generations}) == 100
