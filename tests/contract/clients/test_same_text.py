"""One place in a file, asked for by every client: the same prompt reaches the engine, the same text is shown."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from clients.developer.prompts import fim_prompt
from tests.contract.clients.continue_driver import Continue
from tests.contract.clients.gateway import KEY, Gateway
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.contract.clients.tabby_driver import tabby_agent
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

PLACES = {
    "in an empty line": ("def add(a, b):\n    ", "\nprint(add(1, 2))\n", "return a + b"),
    "within a line": ("print(add(", "))\n", "1, 2"),
    "not ASCII": ("# Größe 😀\nname = ", "\nprint(name)\n", "'größer 😀'"),
    "at the end": ("import os\n\npath = ", "", "os.getcwd()"),
    "over several lines": ("def f(x):\n", "\n\n\ndef g():\n    pass\n", "    y = x\n    return y"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_same_text_is_shown(
    adapters: JsonLines, gateway: Gateway, engine: FakeEngine, tmp_path: Path, place: str
) -> None:
    prefix, suffix, text = PLACES[place]
    prompt = fim_prompt(prefix, suffix)
    engine.reply = lambda asked: text if asked == prompt else f"another prompt: {asked}"
    shown = shown_by_all(adapters, gateway, tmp_path, prefix, suffix)
    assert shown == dict.fromkeys(shown, text)
    assert {generation.text for generation in gateway.generations(len(shown))} == {text}
    assert {generation.prompt for generation in gateway.generations(len(shown))} == {prompt}


def shown_by_all(adapters: JsonLines, gateway: Gateway, home: Path, prefix: str, suffix: str) -> dict[str, str]:
    """Client → what it shows, greedily where it can say so."""
    editor, filler = Continue(adapters, gateway), Continue(adapters, gateway, "mistral")
    return {
        "openai-python": shown_by_script(gateway, prefix, suffix),
        "Continue": editor.complete(prefix, suffix, temperature=0),
        "Continue, Mistral's format": filler.fill(prefix, suffix, temperature=0),
        "Tabby": shown_by_tabby(gateway, home, prefix, suffix),
    }


def shown_by_script(gateway: Gateway, prefix: str, suffix: str) -> str:
    """openai-python, streaming."""
    with openai.OpenAI(api_key=KEY, base_url=gateway.api) as client:
        # an empty suffix would ask to go on with a plain text
        stream = client.completions.create(
            model="tabwise", prompt=prefix, suffix=suffix or "\n", temperature=0, stream=True
        )
        return "".join(chunk.choices[0].text for chunk in stream)


def shown_by_tabby(gateway: Gateway, home: Path, prefix: str, suffix: str) -> str:
    """tabby-agent, a new one."""
    with tabby_agent(home) as agent:
        agent.start(gateway.url, KEY)
        completion = agent.complete(prefix, suffix)
        return "".join(choice["text"] for choice in completion["choices"])
