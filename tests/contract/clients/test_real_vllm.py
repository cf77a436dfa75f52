"""The gateway process in front of a real vLLM, with real clients: what the fake engine cannot prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from clients.developer.prompts import STOP
from clients.developer.wire import MODEL
from tests.contract import tiny_model
from tests.contract.clients.continue_driver import Continue
from tests.contract.clients.gateway import KEY, Gateway, eventually, gateway_process
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.contract.clients.test_same_text import shown_by_all
from tests.contract.conftest import MAX_MODEL_LEN, Engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(LIMIT_S + 180)]

SUFFIX = "\n    return result\n"
PREFIX = "def total(items):\n    result = "
SHORT, LONG = 5, 300


@pytest.fixture(scope="module")
def gateways(
    vllm_engine: Engine, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Gateway]]:
    """By the longest completion. Greedy, for Tabby's plugins name no temperature."""
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    told = {"MAX_MODEL_LEN": str(MAX_MODEL_LEN), "TEMPERATURE_OVERRIDE": "0"}
    short = gateway_process(vllm_engine.url, redis_url, log, MAX_COMPLETION_TOKENS=str(SHORT), **told)
    long = gateway_process(vllm_engine.url, redis_url, log, MAX_COMPLETION_TOKENS=str(LONG), **told)
    with short as first, long as second:
        yield {SHORT: first, LONG: second}


@pytest.fixture
def gateway(
    vllm_engine: Engine, gateways: dict[int, Gateway], clean_redis: str, request: pytest.FixtureRequest
) -> Gateway:
    """Base weights, nothing recorded. `LONG` completions unless the test says otherwise."""
    vllm_engine.load(None, "default")
    return gateways[getattr(request, "param", LONG)]


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=KEY, base_url=gateway.api, timeout=60) as client:
        yield client


def complete(sdk: openai.OpenAI, prefix: str, **more: Any) -> str:
    """Greedily."""
    answer = sdk.completions.create(model="tabwise", prompt=prefix, suffix=SUFFIX, temperature=0, **more)
    return str(answer.choices[0].text)


def say(
    engine: Engine, gateway: Gateway, sdk: openai.OpenAI, folder: Path, wanted: Callable[[str], bool]
) -> tuple[str, int]:
    """The model is a random one that says blanks: load others until one says what is `wanted`. Returns that and the
    version; nothing is recorded of the search."""
    for version in range(1, 100):
        other = tiny_model.perturb(engine.folders[0], folder / str(version), scale=0.3, seed=version)
        engine.load(other, str(version))
        text = complete(sdk, PREFIX)
        if wanted(text):
            gateway.generations(version)
            gateway.forget()
            return text, version
    raise AssertionError("nothing that they say can be used")


def plain(text: str) -> bool:
    """Nobody cuts anything from it."""
    return bool(text) and text.isprintable() and text == text.strip() and not any(stop in text for stop in STOP)


def varied(text: str) -> bool:
    """Something comes after a while that did not come before."""
    return "\ufffd" not in text[:12] and text.find(text[8:11]) == 8 and not any(stop in text for stop in STOP)


@pytest.mark.parametrize("gateway", [SHORT], indirect=True)
def test_the_same_text_is_shown(
    adapters: JsonLines, vllm_engine: Engine, gateway: Gateway, sdk: openai.OpenAI, tmp_path: Path
) -> None:
    text, version = say(vllm_engine, gateway, sdk, tmp_path, plain)
    shown = shown_by_all(adapters, gateway, tmp_path, PREFIX, SUFFIX)
    assert shown == dict.fromkeys(shown, text)
    recorded = gateway.generations(len(shown))
    assert {generation.policy_version for generation in recorded} == {version}
    assert {generation.text for generation in recorded} == {text}
    assert len({(generation.prompt, *generation.token_ids) for generation in recorded}) == 1
    assert {generation.sampling.temperature for generation in recorded} == {0}


def test_stop_strings(
    adapters: JsonLines, vllm_engine: Engine, gateway: Gateway, sdk: openai.OpenAI, tmp_path: Path
) -> None:
    """Twelve of them, as many as Continue sends; one of them comes, whichever it is."""
    text, _ = say(vllm_engine, gateway, sdk, tmp_path, varied)
    for position in (0, 5, 11):
        stop = [f"never-{number}" for number in range(12)]
        stop[position] = text[8:11]
        assert Continue(adapters, gateway).complete(PREFIX, SUFFIX, temperature=0, stop=stop) == text[:8]
        recorded = gateway.generation()
        gateway.forget()
        assert (recorded.text, recorded.sampling.stop) == (text[:8], tuple(stop))
        assert (recorded.finish_reason, recorded.stop_reason) == ("stop", stop[position])
        assert len(recorded.token_ids) < LONG


@pytest.mark.parametrize("token_id", range(1, 5))
def test_special_tokens_end_it(adapters: JsonLines, gateway: Gateway, token_id: int) -> None:
    """Continue names them as stop strings; to vLLM they are tokens. One of them is made to come at once."""
    bias = {str(token_id): 100.0}
    assert Continue(adapters, gateway).complete(PREFIX, SUFFIX, temperature=0, logit_bias=bias) == ""
    recorded = gateway.generation()
    assert (recorded.text, recorded.token_ids) == ("", [token_id])
    assert (recorded.stop_reason, recorded.untrainable) == (tiny_model.SPECIAL[token_id], "distorted_sampling")
    assert (recorded.sampling.stop, recorded.client_model) == (STOP, MODEL)


def test_each_version_is_recorded(vllm_engine: Engine, gateway: Gateway, sdk: openai.OpenAI) -> None:
    for folder, version in ((None, "default"), (vllm_engine.folders[1], "7"), (vllm_engine.folders[2], "8")):
        vllm_engine.load(folder, version)
        complete(sdk, PREFIX, max_tokens=8)
    recorded = gateway.generations(3)
    assert [[span.version for span in generation.policy_spans] for generation in recorded] == [[0], [7], [8]]
    assert len({tuple(generation.token_ids) for generation in recorded}) == 3, "other weights, other words"
    for generation in recorded:
        (span,) = generation.policy_spans
        assert (span.start, span.end) == (0, len(generation.token_ids))


def test_what_is_recorded_can_be_trained_on(vllm_engine: Engine, gateway: Gateway, sdk: openai.OpenAI) -> None:
    """The same tokens, logprobs and ids that the engine says it sampled from."""
    sdk.completions.create(model="tabwise", prompt=PREFIX, suffix=SUFFIX, temperature=0, max_tokens=20)
    recorded = gateway.generation()
    direct = vllm_engine.complete(prompt=recorded.prompt, temperature=0, max_tokens=20)["choices"][0]
    assert recorded.token_ids == direct["token_ids"]
    assert recorded.prompt_token_ids == direct["prompt_token_ids"]
    assert recorded.logprobs == pytest.approx(direct["logprobs"]["token_logprobs"], abs=0.01)
    assert recorded.text == direct["text"]


@pytest.mark.parametrize("by", ["openai-python", "Continue"])
def test_hanging_up_frees_the_engine(
    adapters: JsonLines, vllm_engine: Engine, gateway: Gateway, sdk: openai.OpenAI, by: str
) -> None:
    text = complete(sdk, PREFIX)
    gateway.generation()
    gateway.forget()
    if by == "Continue":
        shown = Continue(adapters, gateway).complete(PREFIX, SUFFIX, temperature=0, hang_up_after=4)
    else:
        stream = sdk.completions.create(model="tabwise", prompt=PREFIX, suffix=SUFFIX, temperature=0, stream=True)
        shown = "".join(next(stream).choices[0].text for _ in range(4))
        eventually(lambda: vllm_engine.running() == 1, 2)
        stream.close()
    eventually(lambda: vllm_engine.running() == 0, 2)
    recorded = gateway.generation()
    assert (recorded.client_gone, recorded.finish_reason, recorded.untrainable) == (True, "abort", "truncated_sampling")
    assert text.startswith(recorded.text)
    assert recorded.text.startswith(shown)
    assert len(recorded.text) < len(text)
    assert len(recorded.token_ids) == len(recorded.logprobs) == recorded.policy_spans[-1].end
