"""openai-python against the gateway: what a script shows, and what is recorded of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types import Completion

from tests.contract.clients.gateway import KEY, Gateway, eventually
from tests.fakes.engine import FakeEngine

PROMPT = "def add(a, b):\n    return "


class Sdk:
    """The SDK with a look at what it puts on the wire."""

    def __init__(self, base_url: str, key: str = KEY) -> None:
        self.requests: list[httpx2.Request] = []
        self._http = httpx2.Client(event_hooks={"request": [self.requests.append]}, trust_env=False)
        self.client = openai.OpenAI(api_key=key, base_url=base_url, http_client=self._http, timeout=20)

    def complete(self, **more: Any) -> Any:
        return self.client.completions.create(**({"model": "gpt-3.5-turbo-instruct", "prompt": PROMPT} | more))

    def on_answer(self, look: Callable[[httpx2.Response], None]) -> None:
        """Called with the head of each answer, before the SDK sees it."""
        self._http.event_hooks = self._http.event_hooks | {"response": [look]}

    @property
    def retries(self) -> list[str]:
        """`x-stainless-retry-count` of each attempt."""
        return [request.headers["x-stainless-retry-count"] for request in self.requests]


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[Sdk]:
    sdk = Sdk(gateway.api)
    with sdk.client:
        yield sdk


def text_of(chunks: list[Completion], index: int = 0) -> str:
    return "".join(choice.text for chunk in chunks for choice in chunk.choices if choice.index == index)


# --- completions ---


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_shown_is_what_is_recorded(sdk: Sdk, gateway: Gateway, engine: FakeEngine, stream: bool) -> None:
    engine.reply = "a + b  # é😀\n"
    answer = sdk.complete(stream=stream, max_tokens=40)
    chunks = list(answer) if stream else [answer]
    recorded = gateway.generation()
    assert text_of(chunks) == recorded.text == "a + b  # é😀\n"
    assert {chunk.id for chunk in chunks} == {recorded.request_id}
    assert {chunk.model for chunk in chunks} == {"gpt-3.5-turbo-instruct"} == {recorded.client_model}
    assert chunks[-1].choices[0].finish_reason == recorded.finish_reason == "stop"
    assert (recorded.prompt, recorded.protocol, recorded.untrainable) == (PROMPT, "openai", None)
    assert [span.version for span in recorded.policy_spans] == [0]


def test_the_sdks_own_defaults(sdk: Sdk, gateway: Gateway) -> None:
    """Neither `max_tokens` nor `temperature`: the gateway's limit, and OpenAI's 1.0."""
    answer = sdk.complete()
    recorded = gateway.generation()
    assert (recorded.sampling.temperature, recorded.sampling.max_tokens) == (1.0, 64)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(recorded.prompt_token_ids)
    assert answer.usage.completion_tokens == len(recorded.token_ids)
    assert recorded.untrainable is None


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_are_recorded_each(sdk: Sdk, gateway: Gateway, stream: bool) -> None:
    answer = sdk.complete(n=2, seed=4, temperature=0.8, stream=stream, max_tokens=12)
    chunks = list(answer) if stream else [answer]
    recorded = gateway.generations(2)
    request_id = chunks[0].id
    assert [generation.generation_id for generation in recorded] == [request_id, f"{request_id}-1"]
    assert [text_of(chunks, index) for index in (0, 1)] == [generation.text for generation in recorded]
    assert recorded[0].text != recorded[1].text


def test_a_seed_repeats(sdk: Sdk, gateway: Gateway) -> None:
    texts = {sdk.complete(seed=9, temperature=1, max_tokens=12).choices[0].text for _ in range(2)}
    assert len(texts) == 1
    assert {generation.sampling.seed for generation in gateway.generations(2)} == {9}


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_not_shown(sdk: Sdk, gateway: Gateway, engine: FakeEngine, stream: bool) -> None:
    engine.reply = "a + b\nprint(add(1, 2))\n"
    answer = sdk.complete(stop=["\nprint", "never"], stream=stream)
    chunks = list(answer) if stream else [answer]
    recorded = gateway.generation()
    assert text_of(chunks) == recorded.text == "a + b"
    assert (recorded.finish_reason, recorded.stop_reason) == ("stop", "\nprint")


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_the_recorded_ones(sdk: Sdk, gateway: Gateway, stream: bool) -> None:
    answer = sdk.complete(logprobs=2, temperature=1, max_tokens=8, stream=stream)
    chunks = list(answer) if stream else [answer]
    shown = [choice.logprobs for chunk in chunks for choice in chunk.choices]
    recorded = gateway.generation()
    assert [value for part in shown for value in part.token_logprobs or []] == recorded.logprobs
    assert all(len(best) >= 2 for part in shown for best in part.top_logprobs or [])
    assert "".join(piece for part in shown for piece in part.tokens or []).startswith(text_of(chunks))


def test_a_suffix_becomes_a_fill_in_the_middle_prompt(sdk: Sdk, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply = "a + b"
    answer = sdk.complete(suffix="\nprint(add(1, 2))\n")
    recorded = gateway.generation()
    assert answer.choices[0].text == recorded.text == "a + b"
    assert recorded.prompt == f"<|fim_prefix|>{PROMPT}<|fim_suffix|>\nprint(add(1, 2))\n<|fim_middle|>"


def test_usage_comes_last(sdk: Sdk, gateway: Gateway) -> None:
    *parts, last = sdk.complete(stream=True, stream_options={"include_usage": True}, max_tokens=6)
    recorded = gateway.generation()
    assert all(part.usage is None and part.choices for part in parts)
    assert last.choices == []
    assert last.usage.completion_tokens == len(recorded.token_ids)


def test_the_model_that_is_served(sdk: Sdk) -> None:
    assert "tabwise" in [model.id for model in sdk.client.models.list()]


# --- refusals ---


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"echo": True}, "echo"),
        ({"best_of": 3}, "best_of"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
    ],
)
def test_what_cannot_be_honoured_is_named(sdk: Sdk, engine: FakeEngine, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk.complete(**wrong)
    assert refusal.value.param == field
    assert field in str(refusal.value)
    assert engine.requests == []
    assert sdk.retries == ["0"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"temperature": -1}, "temperature"), ({"max_tokens": "many"}, "max_tokens"), ({"n": 99}, "n")],
)
def test_what_is_malformed_is_named(sdk: Sdk, engine: FakeEngine, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError)) as refusal:
        sdk.complete(**wrong)
    assert refusal.value.param == field
    assert engine.requests == []


def test_an_unknown_key(gateway: Gateway) -> None:
    with Sdk(gateway.api, key="wrong").client as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_an_unknown_route(sdk: Sdk) -> None:
    with pytest.raises(openai.NotFoundError):
        sdk.client.embeddings.create(model="m", input="x")


# --- an engine that is away ---


@pytest.mark.parametrize("stream", [False, True])
def test_it_tries_again_when_told_to(sdk: Sdk, gateway: Gateway, engine: FakeEngine, stream: bool) -> None:
    """503 with `Retry-After`: the SDK waits that long and comes back; the second attempt is served."""
    engine.faults.status, engine.reply = 503, "a + b"
    sdk.on_answer(lambda answer: setattr(engine.faults, "status", None))
    began = time.monotonic()
    answer = sdk.complete(stream=stream)
    chunks = list(answer) if stream else [answer]
    assert text_of(chunks) == "a + b"
    assert sdk.retries == ["0", "1"]
    assert time.monotonic() - began >= 0.9, "Retry-After: 1"
    assert gateway.generation().text == "a + b"


def test_it_gives_up_after_two_more(sdk: Sdk, engine: FakeEngine) -> None:
    engine.faults.status = 503
    with pytest.raises(openai.InternalServerError) as refusal:
        sdk.complete()
    assert refusal.value.status_code == 503
    assert refusal.value.response.headers["retry-after"]
    assert sdk.retries == ["0", "1", "2"]


def test_an_engine_that_dies_in_mid_stream(sdk: Sdk, gateway: Gateway, engine: FakeEngine) -> None:
    """What came is shown, then the SDK raises; it does not ask again."""
    engine.reply, engine.faults.reset_after = "x" * 40, 10
    chunks: list[Completion] = []
    with pytest.raises(openai.APIError):
        chunks.extend(sdk.complete(stream=True))
    assert text_of(chunks) == gateway.generation().text == "x" * 10
    assert sdk.retries == ["0"]


# --- hanging up ---


def test_closing_in_mid_stream_frees_the_engine(sdk: Sdk, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply, engine.faults.token_delay_s = "x" * 60, 0.02
    stream = sdk.complete(stream=True)
    shown = text_of([next(stream) for _ in range(5)])
    stream.close()
    closed = time.monotonic()
    eventually(lambda: engine.running == 0)
    took_s = time.monotonic() - closed
    recorded = gateway.generation()
    assert engine.aborted == 1
    assert (recorded.client_gone, recorded.finish_reason) == (True, "abort")
    assert recorded.text.startswith(shown)
    assert len(recorded.text) < 30
    assert took_s < 0.25, "50 ms on a machine that does nothing else"
