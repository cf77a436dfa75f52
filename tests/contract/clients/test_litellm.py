"""LiteLLM as a client of the gateway: both of its providers for text completions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.clients.gateway import KEY, Gateway
from tests.contract.clients.installed import HERE, LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

PROMPT = "def add(a, b):\n    return "
PROVIDERS = ["text-completion-openai", "hosted_vllm"]


@pytest.fixture(scope="module")
def litellm(litellm_folder: Path) -> Iterator[JsonLines]:
    """`litellm_driver.py`, with LiteLLM in front of our own environment."""
    environment = os.environ | {"PYTHONPATH": str(litellm_folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with JsonLines([sys.executable, "litellm_driver.py"], HERE, environment) as child:
        yield child


def complete(litellm: JsonLines, gateway: Gateway, provider: str, **more: Any) -> list[dict[str, Any]]:
    request = {"model": f"{provider}/tabwise", "api_base": gateway.api, "api_key": KEY, "prompt": PROMPT}
    litellm.send(request | more)
    chunks = []
    while "chunk" in (said := litellm.receive(60)):
        chunks.append(said["chunk"])
    assert "error" not in said, said
    return chunks


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_completion(litellm: JsonLines, gateway: Gateway, engine: FakeEngine, provider: str, stream: bool) -> None:
    engine.reply = "a + b  # é😀\nmore"
    chunks = complete(litellm, gateway, provider, stream=stream, stop=["\nmore"], max_tokens=40, temperature=0.5)
    recorded = gateway.generation()
    shown = "".join(choice["text"] or "" for chunk in chunks for choice in chunk["choices"])
    assert shown == recorded.text == "a + b  # é😀"
    assert (recorded.prompt, recorded.client_model, recorded.protocol) == (PROMPT, "tabwise", "openai")
    assert (recorded.sampling.temperature, recorded.sampling.max_tokens) == (0.5, 40)
    assert recorded.untrainable is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_refusal_names_the_field(litellm: JsonLines, gateway: Gateway, engine: FakeEngine, provider: str) -> None:
    request = {"model": f"{provider}/tabwise", "api_base": gateway.api, "api_key": KEY, "prompt": PROMPT, "echo": True}
    litellm.send(request)
    said = litellm.receive(60)
    assert said["error"]["name"] == "BadRequestError", said
    assert "echo" in said["error"]["message"]
    assert engine.requests == []
