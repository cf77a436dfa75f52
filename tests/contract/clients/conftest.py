"""A gateway process in front of the fake engine, and the clients that are installed for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.clients import installed
from tests.contract.clients.gateway import Gateway, gateway_process
from tests.contract.clients.lines import JsonLines
from tests.fakes.engine import FakeEngine, Faults


@pytest.fixture(scope="session")
def client_engine() -> Iterator[FakeEngine]:
    """One for all; `engine` is the same, as new."""
    with FakeEngine() as engine:
        yield engine


@pytest.fixture(scope="session")
def client_gateway(
    client_engine: FakeEngine, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One for all; `gateway` is the same, with nothing recorded."""
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    with gateway_process(client_engine.url, redis_url, log) as gateway:
        yield gateway


@pytest.fixture
def engine(client_engine: FakeEngine) -> FakeEngine:
    """Samples from its own distribution, without faults; has seen no request."""
    client_engine.reply, client_engine.faults = None, Faults()
    client_engine.requests.clear()
    client_engine.aborted = 0
    return client_engine


@pytest.fixture
def gateway(engine: FakeEngine, client_gateway: Gateway, clean_redis: str) -> Gateway:
    """In front of `engine`."""
    return client_gateway


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Words for the person who waits, past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(words: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{words}", file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="session")
def node_modules(say: Callable[[str], None]) -> Path:
    """tabby-agent and Continue's packages."""
    return _installed("TABWISE_SKIP_NODE", lambda: installed.install_node_modules(say))


@pytest.fixture(scope="session")
def litellm_folder(say: Callable[[str], None]) -> Path:
    """LiteLLM and the openai that it wants."""
    return _installed("TABWISE_SKIP_LITELLM", lambda: installed.install_litellm(say))


def _installed(switch: str, install: Callable[[], Path]) -> Path:
    if os.environ.get(switch) == "1":
        pytest.skip(f"{switch}=1")
    try:
        return install()
    except installed.NotInstalled as error:
        words = str(error)
    pytest.fail(words, pytrace=False)


@pytest.fixture(scope="session")
def adapters(node_modules: Path) -> Iterator[JsonLines]:
    """Continue's adapters (`continue_adapter.mjs`)."""
    with JsonLines(installed.node("continue_adapter.mjs"), installed.HERE, os.environ) as child:
        yield child


@pytest.fixture(scope="session")
def schemas(node_modules: Path) -> Iterator[JsonLines]:
    """Continue's published schemas (`continue_schemas.mjs`)."""
    with JsonLines(installed.node("continue_schemas.mjs"), installed.HERE, os.environ) as child:
        yield child
