"""A key that has as many requests in flight as it may: 429 at once, and what the clients make of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.contract.clients.continue_driver import AdapterError, Continue
from tests.contract.clients.gateway import KEY, Gateway, eventually, gateway_process
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.contract.clients.tabby_driver import tabby_agent
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


@pytest.fixture(scope="module")
def narrow(client_engine: FakeEngine, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One request at a time."""
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    with gateway_process(client_engine.url, redis_url, log, KEY_CONCURRENCY="1") as gateway:
        yield gateway


@contextmanager
def busy(gateway: Gateway, engine: FakeEngine, for_s: float) -> Iterator[None]:
    """The only place is taken, until `for_s` from now."""
    engine.reply, engine.faults.token_delay_s = "x" * 60, 0.1
    with openai.OpenAI(api_key=KEY, base_url=gateway.api) as client:
        stream = client.completions.create(model="m", prompt="p", stream=True)
        next(stream)
        engine.reply = "a + b"
        timer = threading.Timer(for_s, stream.close)
        timer.start()
        try:
            yield
        finally:
            timer.join()
    eventually(lambda: engine.running == 0)


def test_openai_python_comes_back(narrow: Gateway, engine: FakeEngine) -> None:
    with openai.OpenAI(api_key=KEY, base_url=narrow.api) as client, busy(narrow, engine, 0.5):
        began = time.monotonic()
        answer = client.completions.with_raw_response.create(model="m", prompt="q")
        took_s = time.monotonic() - began
    assert answer.parse().choices[0].text == "a + b"
    assert answer.retries_taken == 1
    assert took_s >= 0.9, "Retry-After: 1"


def test_openai_python_without_retries(narrow: Gateway, engine: FakeEngine) -> None:
    """At once: nothing waits in line."""
    with openai.OpenAI(api_key=KEY, base_url=narrow.api, max_retries=0) as client, busy(narrow, engine, 0.5):
        began = time.monotonic()
        with pytest.raises(openai.RateLimitError) as refusal:
            client.completions.create(model="m", prompt="q")
        took_s = time.monotonic() - began
    assert took_s < 0.3
    assert (refusal.value.code, refusal.value.type) == ("too_many_requests", "rate_limit_error")
    assert refusal.value.response.headers["retry-after"] == "1"


def test_continue(adapters: JsonLines, narrow: Gateway, engine: FakeEngine) -> None:
    """Its adapter gives up after two more tries; its core must not take the words for a reason to try five times."""
    with busy(narrow, engine, 4), pytest.raises(AdapterError) as refusal:
        Continue(adapters, narrow).complete("def f():\n    ", "\n")
    assert refusal.value.status == 429
    words = str(refusal.value).lower()
    assert "overloaded" not in words
    assert '"code":429' not in words.replace(" ", "")


def test_tabby(node_modules: Path, narrow: Gateway, engine: FakeEngine, tmp_path: Path) -> None:
    """It shows nothing this time, and goes on."""
    with tabby_agent(tmp_path) as agent:
        agent.start(narrow.url, KEY)
        with busy(narrow, engine, 0.5):
            assert agent.complete("def f():\n    return ", "\n") is None
            assert agent.call("getStatus") == "ready"
        shown = agent.complete("def f():\n    return ", "\n")
        assert [choice["text"] for choice in shown["choices"]] == ["a + b"]
