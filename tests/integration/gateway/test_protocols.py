"""Each protocol over a real port: what its clients get, and what is recorded of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from shared.contracts.names import STREAM_GENERATIONS
from shared.fim import parse
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.others import other_server
from tests.integration.gateway.support import Gateway, chunks, eventually, serving

REPLY = "return a + b  # é日本🙂\n"
PREFIX, SUFFIX = "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n"
BIG = "".join(f"value_{number} = {number}\n" for number in range(2000))
TABBY = {"language": "python", "segments": {"prefix": PREFIX, "suffix": SUFFIX, "filepath": "src/add.py"}}
INFILL = {"input_prefix": "def add(a, b):\n", "prompt": "    ", "input_suffix": SUFFIX}


async def post(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    answer = await gateway.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- Mistral ---


async def test_fim_whole_and_streamed() -> None:
    body = {"model": "codestral-latest", "prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 64}
    with FakeEngine(reply=REPLY) as engine:
        async with serving(engine.url) as gateway:
            whole = await post(gateway, "/v1/fim/completions", body)
            streamed = chunks((await gateway.client.post("/v1/fim/completions", json=body | {"stream": True})).text)
            generations = await gateway.generations(2)

    assert whole["choices"][0]["message"]["content"] == REPLY
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in streamed) == REPLY
    assert streamed[-1]["usage"] == whole["usage"]
    assert {generation.protocol for generation in generations} == {"mistral"}
    assert [whole["id"], streamed[0]["id"]] == [generation.request_id for generation in generations]


# --- Tabby ---


async def test_tabbys_ids_are_those_of_the_generation() -> None:
    with FakeEngine(reply=REPLY) as engine:
        async with serving(engine.url) as gateway:
            answer = await post(gateway, "/v1/completions", TABBY)
            (generation,) = await gateway.generations(1)

    assert answer == {"id": generation.request_id, "choices": [{"index": 0, "text": REPLY}]}
    assert (generation.protocol, generation.text, generation.untrainable) == ("tabby", REPLY, None)


async def test_tabbys_other_routes() -> None:
    async with serving("http://127.0.0.1:9") as gateway:
        answers = [await gateway.client.request(method, "/v1/health") for method in ("GET", "POST")]
        setting = await gateway.client.get("/v1beta/server_setting")
        unknown = await gateway.client.get("/v1/health", headers={"Authorization": "Bearer no"})
        plain = await gateway.client.get("/health", headers={"Authorization": ""})

    assert [answer.json()["model"] for answer in answers] == ["tabwise", "tabwise"]
    assert "git_describe" in answers[0].json()["version"]
    assert setting.json() == {"disable_client_side_telemetry": True}
    assert unknown.status_code == 401
    assert plain.json() == {"status": "ok"}


async def test_events_are_passed_on_to_ingest() -> None:
    event = b'{"type": "select",  "completion_id": "cmpl-1", "choice_index": 0}'
    async with (
        other_server("/v1/events/tabby", content_type="text/plain", answer=[]) as ingest,
        serving("http://127.0.0.1:9", ingest_url=ingest.url) as gateway,
    ):
        headers = {"X-Project-ID": "team-a", "X-Secret": "no"}
        answer = await gateway.client.post("/v1/events?select_kind=line", content=event, headers=headers)

    assert (answer.status_code, answer.content) == (200, b"")
    assert (ingest.bodies, ingest.queries) == ([event], ["select_kind=line"])
    assert ingest.headers[0]["authorization"] == "Bearer test-key"
    assert ingest.headers[0]["x-project-id"] == "team-a"
    assert "x-secret" not in ingest.headers[0]


async def test_ingests_refusal_is_the_clients_answer() -> None:
    error = b'{"error": {"message": "m", "type": "t", "param": "type", "code": "invalid_body"}}'
    async with (
        other_server("/v1/events/tabby", status=422, content_type="application/json", answer=[error]) as ingest,
        serving("http://127.0.0.1:9", ingest_url=ingest.url) as gateway,
    ):
        answer = await gateway.client.post("/v1/events", content=b"{}")

    assert (answer.status_code, answer.content) == (422, error)


@pytest.mark.parametrize("pause_s", [0.0, 5.0])
async def test_ingest_is_away(pause_s: float) -> None:
    async with other_server("/v1/events/tabby", pause_s=pause_s, answer=[b"x"]) as ingest:
        url = ingest.url if pause_s else "http://127.0.0.1:9"
        async with serving("http://127.0.0.1:9", ingest_url=url, ingest_timeout_s=0.2) as gateway:
            answer = await gateway.client.post("/v1/events", content=b"{}")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "feedback_unavailable")


# --- llama.cpp ---


async def test_infill() -> None:
    with FakeEngine(reply=REPLY) as engine:
        async with serving(engine.url) as gateway:
            answer = await post(gateway, "/infill", INFILL)
            (generation,) = await gateway.generations(1)

    assert answer["content"] == generation.text == REPLY
    assert answer["timings"]["predicted_n"] == len(generation.token_ids)
    assert answer["timings"]["prompt_n"] == len(generation.prompt_token_ids)
    assert answer["timings"]["prompt_ms"] == pytest.approx((generation.first_token_s or 0) * 1000)
    assert (generation.protocol, generation.client_model) == ("llamacpp", "tabwise")


async def test_natural_siblings() -> None:
    with FakeEngine(reply=["one", "two", "three"]) as engine:
        async with serving(engine.url) as gateway:
            answers = await post(gateway, "/infill", INFILL | {"n_cmpl": 3})
            generations = await gateway.generations(3)

    assert [answer["content"] for answer in answers] == ["one", "two", "three"]
    assert [generation.text for generation in generations] == ["one", "two", "three"]
    assert len({generation.request_id for generation in generations}) == 1


async def test_infill_streamed() -> None:
    with FakeEngine(reply="ab") as engine:
        async with serving(engine.url) as gateway:
            response = await gateway.client.post("/infill", json=INFILL | {"stream": True})

    *parts, last = chunks(response.text)
    assert "[DONE]" not in response.text
    assert [(part["content"], part["stop"]) for part in parts] == [("a", False), ("b", False)]
    assert (last["stop"], last["content"], last["tokens_predicted"], last["stop_type"]) == (True, "", 3, "word")


async def test_warm_ups_do_not_reach_the_engine() -> None:
    with FakeEngine() as engine:
        async with serving(engine.url) as gateway:
            answer = await post(gateway, "/infill", INFILL | {"n_predict": 0, "samplers": []})
            assert await gateway.streams.length(STREAM_GENERATIONS) == 0

    assert (answer["content"], engine.requests) == ("", [])


async def test_infill_ends_at_its_time_with_what_is_there() -> None:
    with FakeEngine(reply="first\n" + "x" * 300) as engine:
        engine.faults.token_delay_s = 0.01
        async with serving(engine.url, max_completion_tokens=300) as gateway:
            answer = await post(gateway, "/infill", INFILL | {"t_max_predict_ms": 300})
            await eventually(lambda: engine.aborted == 1)
            (generation,) = await gateway.generations(1)

    assert answer["content"].startswith("first\nx")
    assert answer["content"] == generation.text
    assert answer["stop_type"] == "limit"
    assert (generation.finish_reason, generation.client_gone, generation.untrainable) == ("abort", False, None)
    assert len(generation.token_ids) < 100


@pytest.mark.parametrize("stream", [False, True])
async def test_infill_ends_where_the_indentation_does(stream: bool) -> None:
    with FakeEngine(reply="a:\n        b\n    c\n" + "x" * 300) as engine:
        engine.faults.token_delay_s = 0.01
        async with serving(engine.url, max_completion_tokens=300) as gateway:
            response = await gateway.client.post("/infill", json=INFILL | {"n_indent": 8, "stream": stream})
            await eventually(lambda: engine.aborted == 1)

    if not stream:
        assert response.json()["content"] == "a:\n        b\n"
    assert engine.tokens_sampled < 40


# --- what they have in common ---


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "m", "prompt": BIG, "suffix": BIG}),
        ("/v1/fim/completions", {"model": "m", "prompt": BIG, "suffix": BIG}),
        ("/v1/completions", {"segments": {"prefix": BIG, "suffix": BIG, "declarations": [{"body": BIG}]}}),
        ("/infill", {"input_prefix": BIG, "input_suffix": BIG, "input_extra": [{"text": BIG}]}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_file_of_two_thousand_lines_is_served(path: str, body: dict[str, Any], stream: bool) -> None:
    """The fake engine has one token per byte, so the estimate is far too high, and the engine refuses at first."""
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url, max_model_len=2048) as gateway:
            answer = await gateway.client.post(path, json=body | {"stream": stream})
            (generation,) = await gateway.generations(1)

    assert answer.status_code == 200, answer.text
    assert len(engine.requests) > 1
    assert len(engine.requests) < 5
    assert 600 < len(generation.prompt_token_ids) <= 2048
    cursor = parse(generation.prompt)
    assert cursor is not None
    assert BIG.endswith(cursor.prefix)
    assert BIG.startswith(cursor.suffix)
    assert cursor.prefix.startswith("value_")


async def test_a_prompt_of_the_clients_own_is_still_refused() -> None:
    with FakeEngine() as engine:
        async with serving(engine.url) as gateway:
            answer = await gateway.complete(prompt=f"<|fim_prefix|>{BIG}<|fim_suffix|>\n<|fim_middle|>")

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/fim/completions", {"model": "m", "prompt": PREFIX}), ("/v1/completions", TABBY), ("/infill", INFILL)],
)
async def test_away_and_unknown(path: str, body: dict[str, Any]) -> None:
    async with serving("http://127.0.0.1:9") as gateway:
        away = await gateway.client.post(path, json=body)
        unknown = await gateway.client.post(path, json=body, headers={"Authorization": "Bearer no"})
        wrong = await gateway.client.post(path, json=body | {"segments": 5, "prompt": 5})

    assert (away.status_code, away.json()["error"]["code"]) == (503, "engine_unavailable")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_body")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/fim/completions", {"model": "m", "prompt": PREFIX}), ("/v1/completions", TABBY), ("/infill", INFILL)],
)
async def test_hanging_up(path: str, body: dict[str, Any]) -> None:
    with FakeEngine(reply="x" * 300) as engine:
        engine.faults.token_delay_s = 0.02
        async with serving(engine.url, max_completion_tokens=300) as gateway:
            with pytest.raises(httpx.ReadTimeout):
                await gateway.client.post(path, json=body, timeout=0.3)
            await eventually(lambda: engine.aborted == 1)
            (generation,) = await gateway.generations(1)

    assert generation.client_gone


async def test_exploration_of_one_project() -> None:
    explored = json.dumps({"team-a": {"temperature": 0.5, "full_support": True}})
    with FakeEngine(reply="ok") as engine:
        async with serving(engine.url, exploration=explored) as gateway:
            body = INFILL | {"top_k": 40, "top_p": 0.9}
            await gateway.client.post("/infill", json=body, headers={"Authorization": "Bearer bound"})
            await gateway.client.post("/infill", json=body)
            theirs, others = await gateway.generations(2)

    assert (theirs.sampling.temperature, theirs.sampling.full_support, theirs.untrainable) == (0.5, True, None)
    assert (others.sampling.top_k, others.sampling.top_p, others.untrainable) == (40, 0.9, "truncated_sampling")


async def test_models_by_any_name() -> None:
    async with serving("http://127.0.0.1:9", model_aliases="qwen2.5-coder, codestral-latest") as gateway:
        listed = (await gateway.client.get("/v1/models")).json()["data"]
        one = (await gateway.client.get("/v1/models/Qwen/Qwen2.5-Coder-1.5B")).json()

    assert [card["id"] for card in listed] == ["tabwise", "qwen2.5-coder", "codestral-latest"]
    assert (one["id"], one["root"]) == ("Qwen/Qwen2.5-Coder-1.5B", "tabwise")
