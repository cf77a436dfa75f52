"""A Tab in an editor with Tabby's plugin ends as feedback on the exact choice: tabby-agent, the gateway, ingest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from clients.developer.prompts import fim_prompt
from deploy.local.embedded import free_port
from shared.contracts.experience import Experience
from shared.contracts.names import STREAM_EXPERIENCE
from tests.contract.clients.gateway import KEY, Gateway, eventually, gateway_process, service
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.tabby_driver import TabbyAgent, tabby_agent
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SUFFIX = "\nprint(add(1, 2))\n"
_numbers = count()


class Ledger:
    """What ingest made of it."""

    def __init__(self, database_url: str, client: redis.Redis) -> None:
        self._url = database_url.replace("+psycopg", "")
        self._redis = client

    def experience(self, completion_id: str) -> Experience:
        """Of this completion, once it is on its way to the trainer: one, and no more."""
        eventually(lambda: self._of(completion_id))
        (experience,) = self._of(completion_id)
        return experience

    def _of(self, completion_id: str) -> list[Experience]:
        entries: Any = self._redis.xrange(STREAM_EXPERIENCE)
        found = [Experience.model_validate_json(fields[b"payload"]) for _, fields in entries]
        return [experience for experience in found if experience.generation_id == completion_id]

    def _rows(self, query: str, completion_id: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url) as connection:
            return connection.execute(query.encode(), [completion_id]).fetchall()

    def events(self, completion_id: str) -> list[tuple[Any, ...]]:
        """Kind, part, verdict and status of each event that named it, in order."""
        query = """SELECT kind, select_kind, accepted, status FROM feedback_events
                   WHERE named_generation_id = %s ORDER BY event_id"""
        return self._rows(query, completion_id)

    def labels(self, completion_id: str) -> list[Any]:
        """Of each outcome that was decided."""
        return [
            label for (label,) in self._rows("SELECT label FROM experience WHERE generation_id = %s", completion_id)
        ]


@pytest.fixture(scope="module")
def gateway(
    client_engine: FakeEngine, postgres_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder, port = tmp_path_factory.mktemp("feedback"), free_port()
    told = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "INGEST_PORT": str(port)}
    quick = {"LATE_ACCEPT_WINDOW_S": "0.3", "SETTLE_GRACE_S": "0.2", "JOIN_GRACE_S": "5"}
    with (
        service("services.ingest", f"http://127.0.0.1:{port}", folder / "ingest.log", told | quick) as ingest,
        gateway_process(client_engine.url, redis_url, folder / "gateway.log", INGEST_URL=ingest) as gateway,
    ):
        yield gateway


@pytest.fixture(scope="module")
def connected(node_modules: Path, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TabbyAgent]:
    with tabby_agent(tmp_path_factory.mktemp("tabby")) as agent:
        agent.start(gateway.url, KEY)
        yield agent


@pytest.fixture
def agent(connected: TabbyAgent, engine: FakeEngine) -> TabbyAgent:
    engine.reply = "a + b  # sum\n"
    return connected


@pytest.fixture
def ledger(postgres_url: str, gateway: Gateway) -> Ledger:
    return Ledger(postgres_url, gateway.redis)


@pytest.fixture
def prefix() -> str:
    """Another one in each test: the agent has a cache."""
    return f"def add{next(_numbers)}(a, b):\n    return "


def test_an_accept(agent: TabbyAgent, ledger: Ledger, prefix: str) -> None:
    shown = agent.complete(prefix, SUFFIX)
    assert agent.post_event("view", shown["id"])
    assert agent.post_event("select", shown["id"], elapsed=700)
    experience = ledger.experience(shown["id"])
    assert (experience.label, experience.prompt) == ("accepted", fim_prompt(prefix, SUFFIX))
    assert experience.shown.text == "a + b  # sum\n"
    assert experience.reward > 0
    assert experience.reference is not None
    assert ledger.events(shown["id"]) == [("view", None, None, "joined"), ("select", None, True, "joined")]


def test_a_dismissal(agent: TabbyAgent, ledger: Ledger, prefix: str) -> None:
    shown = agent.complete(prefix, SUFFIX)
    assert agent.post_event("view", shown["id"])
    assert agent.post_event("dismiss", shown["id"], elapsed=900)
    experience = ledger.experience(shown["id"])
    assert experience.label == "rejected"
    assert experience.reward < 0
    assert ledger.events(shown["id"]) == [("view", None, None, "joined"), ("dismiss", None, False, "joined")]


def test_accepting_one_line(agent: TabbyAgent, ledger: Ledger, engine: FakeEngine, prefix: str) -> None:
    """`select_kind=line` in the query: only the first line was taken."""
    engine.reply = "(\n        a + b\n    )"
    shown = agent.complete(prefix, SUFFIX)
    assert agent.post_event("view", shown["id"])
    assert agent.post_event("select", shown["id"], select_kind="line", elapsed=700)
    experience = ledger.experience(shown["id"])
    assert experience.label == "accepted"
    assert experience.shown.text == "(\n        a + b\n    )"
    assert experience.shown.credited_tokens < len(experience.shown.token_ids)
    assert ledger.events(shown["id"])[-1] == ("select", "line", True, "joined")


def test_a_view_alone_says_nothing(agent: TabbyAgent, ledger: Ledger, prefix: str) -> None:
    shown = agent.complete(prefix, SUFFIX)
    assert agent.post_event("view", shown["id"])
    later = agent.complete(prefix + "a", SUFFIX + "\n")
    assert agent.post_event("select", later["id"])
    ledger.experience(later["id"])
    assert ledger.events(shown["id"]) == [("view", None, None, "joined")]
    assert ledger.labels(shown["id"]) == []


def test_the_same_event_twice_counts_once(agent: TabbyAgent, ledger: Ledger, prefix: str) -> None:
    shown = agent.complete(prefix, SUFFIX)
    assert [agent.post_event("select", shown["id"]) for _ in range(2)] == [True, True]
    assert ledger.experience(shown["id"]).label == "accepted"
    assert ledger.events(shown["id"]) == [("select", None, True, "joined")]


def test_typing_ahead_of_the_accept(agent: TabbyAgent, ledger: Ledger, prefix: str) -> None:
    """The second display comes from the agent's cache under the first's id; its accept is feedback on that choice."""
    first = agent.complete(prefix, SUFFIX)
    assert agent.post_event("view", first["id"])
    ahead = agent.complete(prefix + "a +", SUFFIX)
    assert ahead["id"] == first["id"]
    assert agent.post_event("dismiss", first["id"], elapsed=300)
    assert agent.post_event("view", ahead["id"], view_id="view-2")
    assert agent.post_event("select", ahead["id"], view_id="view-2", elapsed=200)

    eventually(lambda: "accepted" in ledger.labels(first["id"]))


def test_a_wrong_event_is_refused(agent: TabbyAgent) -> None:
    """The agent only learns that it was not taken."""
    assert agent.post_event("select", "") is False
