"""tabby-agent against the gateway: it connects, completes, caches and cancels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from clients.developer.prompts import fim_prompt
from tests.contract.clients.gateway import KEY, Gateway, eventually
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.tabby_driver import TabbyAgent, tabby_agent
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SUFFIX = "\nprint(add(1, 2))\n"
_numbers = count()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tabby")


@pytest.fixture(scope="module")
def connected(node_modules: Path, home: Path, client_gateway: Gateway) -> Iterator[TabbyAgent]:
    with tabby_agent(home) as agent:
        agent.start(client_gateway.url, KEY)
        yield agent


@pytest.fixture
def agent(connected: TabbyAgent, gateway: Gateway) -> TabbyAgent:
    return connected


@pytest.fixture
def prefix() -> str:
    """Another one in each test: the agent has a cache."""
    return f"def add{next(_numbers)}(a, b):\n    return "


def text_of(completion: Any) -> str:
    (choice,) = completion["choices"]
    return str(choice["text"])


def test_it_connects(agent: TabbyAgent) -> None:
    assert agent.call("getStatus") == "ready"
    health = agent.call("getServerHealthState")
    assert {"model", "device", "version"} <= set(health)
    assert agent.call("getIssues") == []


def test_its_makers_learn_nothing(agent: TabbyAgent, home: Path, gateway: Gateway) -> None:
    """The server's setting turns its usage statistics off; it remembers that for the next start."""
    data = home / ".tabby-client" / "agent" / "data.json"

    def remembered() -> bool:
        told = json.loads(data.read_text()).get("serverConfig", {}).get(gateway.url, {})
        return bool(told == {"anonymousUsageTracking": {"disable": True}})

    eventually(remembered, 3)


def test_an_unknown_key(node_modules: Path, gateway: Gateway, tmp_path: Path) -> None:
    with tabby_agent(tmp_path) as agent:
        agent.start(gateway.url, "wrong")
        assert agent.call("getStatus") == "unauthorized"
        assert "authRequired" in [event["event"] for event in agent.events]


def test_a_completion(agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str) -> None:
    engine.reply = "a + b  # é😀\n<|endoftext|>"
    shown = agent.complete(prefix, SUFFIX)
    recorded = gateway.generation()
    assert text_of(shown) == "a + b  # é😀", "the agent trims blanks at the end of a line"
    assert recorded.text == "a + b  # é😀\n"
    assert shown["id"] == recorded.request_id == recorded.generation_id
    assert (recorded.protocol, recorded.prompt) == ("tabby", fim_prompt(prefix, SUFFIX))
    assert recorded.untrainable is None


def test_what_it_found_elsewhere(agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str) -> None:
    """Declarations and snippets of other files are files of the prompt."""
    engine.reply = "a + b"
    snippet = {"filepath": "/ws/src/util.py", "offset": 0, "text": "def twice(x):\n    return 2 * x\n", "score": 1.0}
    agent.complete(prefix, SUFFIX, workspace="/ws", relevantSnippetsFromChangedFiles=[snippet])
    prompt = gateway.generation().prompt
    assert prompt.endswith(fim_prompt(prefix, SUFFIX))
    assert "<|file_sep|>src/util.py\ndef twice(x):" in prompt
    assert "<|file_sep|>src/add.py\n<|fim_prefix|>" in prompt


def test_it_has_a_cache(agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str) -> None:
    """The same place again, and typing what was shown: the same id, and no request."""
    engine.reply = "a + b"
    first = agent.complete(prefix, SUFFIX)
    again = agent.complete(prefix, SUFFIX)
    ahead = agent.complete(prefix + "a", SUFFIX)
    assert first["id"] == again["id"] == ahead["id"] == gateway.generation().request_id
    assert text_of(ahead) == "a + b", "the whole line, to replace what was typed of it"
    assert ahead["choices"][0]["replaceRange"] == {"start": len(prefix), "end": len(prefix) + 1}


def test_only_twenty_lines_each_way(agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str) -> None:
    engine.reply = "a + b"
    before, after = "x = 1\n" * 30, "\n" + "y = 2\n" * 30
    agent.complete(before + prefix, after)
    assert gateway.generation().prompt == fim_prompt("x = 1\n" * 18 + prefix, "\n" + "y = 2\n" * 19)


@pytest.mark.parametrize("how", ["cancelled", "replaced"])
def test_giving_up_frees_the_engine(
    agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str, how: str
) -> None:
    """The editor cancels, or the next keystroke does."""
    engine.reply, engine.faults.token_delay_s = "x" * 60, 0.02
    running = agent.begin_completion(prefix, SUFFIX)
    eventually(lambda: engine.running == 1)
    sampled = engine.tokens_sampled
    eventually(lambda: engine.tokens_sampled > sampled + 4)
    if how == "cancelled":
        assert agent.call("cancelRequest", running) is True
    else:
        engine.reply, engine.faults.token_delay_s = "a + b", 0
        agent.complete(prefix + "(", SUFFIX)
    assert agent.result(running) is None
    eventually(lambda: engine.running == 0)
    recorded = gateway.generations(1 if how == "cancelled" else 2)
    (given_up,) = [generation for generation in recorded if generation.client_gone]
    assert engine.aborted == 1
    assert 0 < len(given_up.text) < 40
    assert set(given_up.text) == {"x"}


def test_no_engine(agent: TabbyAgent, gateway: Gateway, engine: FakeEngine, prefix: str) -> None:
    """It shows nothing, asks for the server's health and stays connected."""
    engine.faults.status = 503
    assert agent.complete(prefix, SUFFIX) is None
    assert agent.call("getStatus") == "ready"
    engine.faults.status, engine.reply = None, "a + b"
    eventually(lambda: agent.complete(prefix, SUFFIX) is not None)


def test_events_while_ingest_is_away(agent: TabbyAgent) -> None:
    """The gateway of this suite has none: the agent is told that it was not stored."""
    assert agent.post_event("view", "cmpl-of-nobody") is False
