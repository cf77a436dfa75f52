"""Chat through the gateway, with openai-python and Continue's adapter: it passes through, and is never recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from shared.contracts.names import STREAM_GENERATIONS
from tests.contract.clients.chat_server import WORDS, ChatServer, chat_server
from tests.contract.clients.continue_driver import Continue
from tests.contract.clients.gateway import KEY, Gateway, gateway_process
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SAID = "".join(WORDS)
REQUEST: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "Say hello in French."}],
    "temperature": 0.3,
    "metadata": {"of": "the client"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture(scope="module")
def chatting(
    server: ChatServer, client_engine: FakeEngine, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    told = {"CHAT_URL": server.url, "CHAT_API_KEY": "key-of-chat"}
    with gateway_process(client_engine.url, redis_url, log, **told) as gateway:
        yield gateway


@pytest.fixture
def gateway(chatting: Gateway, server: ChatServer, clean_redis: str) -> Gateway:
    server.asked.clear()
    return chatting


def passed_on(server: ChatServer, gateway: Gateway) -> dict[str, Any]:
    """The body that reached the chat server; nothing else did."""
    ((path, headers, body),) = server.asked
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer key-of-chat"
    assert KEY not in str(headers)
    assert gateway.redis.xlen(STREAM_GENERATIONS) == 0
    return dict(body)


@pytest.mark.parametrize("stream", [False, True])
def test_openai_python(gateway: Gateway, server: ChatServer, stream: bool) -> None:
    with openai.OpenAI(api_key=KEY, base_url=gateway.api) as client:
        create: Any = client.chat.completions.create
        answer = create(**REQUEST, stream=stream)
        parts = [chunk.choices[0].delta.content for chunk in answer] if stream else [answer.choices[0].message.content]
    assert "".join(part or "" for part in parts) == SAID
    assert passed_on(server, gateway) == REQUEST | {"stream": stream}


def test_continue(adapters: JsonLines, gateway: Gateway, server: ChatServer) -> None:
    chunks = Continue(adapters, gateway).call("chatCompletionStream", REQUEST | {"stream": True})
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == SAID
    assert passed_on(server, gateway) == REQUEST | {"stream": True, "stream_options": {"include_usage": True}}
