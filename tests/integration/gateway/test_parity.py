"""Whoever asks for the same place, by whatever protocol: the same prompt, and at temperature 0 the same text."""

from __future__ import annotations

from typing import Any

import pytest

from clients.developer.prompts import fim_prompt
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import Gateway, chunks, continues_request, serving, text_of

PLACES = [
    ("def add(a, b):\n    ", "\n\nprint(add(1, 2))\n"),
    ("import os\n\nfor name in os.lis", ""),
    ("", "x = 1\n"),
    ("tabs\t\nand é日本🙂\r\n", "  \n"),
]


async def by_continue(gateway: Gateway, prefix: str, suffix: str) -> str:
    body = continues_request(prompt=fim_prompt(prefix, suffix), temperature=0)
    return text_of((await gateway.client.post("/v1/completions", json=body)).text)


async def by_suffix(gateway: Gateway, prefix: str, suffix: str) -> str:
    body = {"model": "m", "prompt": prefix, "suffix": suffix, "temperature": 0}
    return str((await answer(gateway, "/v1/completions", body))["choices"][0]["text"])


async def by_suffix_streamed(gateway: Gateway, prefix: str, suffix: str) -> str:
    body = {"model": "m", "prompt": [prefix], "suffix": suffix, "temperature": 0, "stream": True}
    return text_of((await gateway.client.post("/v1/completions", json=body)).text)


async def by_fim(gateway: Gateway, prefix: str, suffix: str) -> str:
    body = {"model": "codestral", "prompt": prefix, "suffix": suffix, "temperature": 0}
    return str((await answer(gateway, "/v1/fim/completions", body))["choices"][0]["message"]["content"])


async def by_fim_streamed(gateway: Gateway, prefix: str, suffix: str) -> str:
    body = {"model": "codestral", "prompt": prefix, "suffix": suffix, "temperature": 0, "stream": True}
    events = chunks((await gateway.client.post("/v1/fim/completions", json=body)).text)
    return "".join(event["choices"][0]["delta"]["content"] for event in events)


async def by_tabby(gateway: Gateway, prefix: str, suffix: str) -> str:
    segments = {"prefix": prefix, "suffix": suffix, "filepath": "a.py", "git_url": "https://host/a.git"}
    body = {"language": "python", "segments": segments, "temperature": 0}
    return str((await answer(gateway, "/v1/completions", body))["choices"][0]["text"])


async def by_infill(gateway: Gateway, prefix: str, suffix: str) -> str:
    above, newline, line = prefix.rpartition("\n")
    body = {"input_prefix": above + newline, "prompt": line, "input_suffix": suffix, "temperature": 0, "n_predict": 128}
    return str((await answer(gateway, "/infill", body))["content"])


async def answer(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    return (await gateway.client.post(path, json=body)).json()


WAYS = [by_continue, by_suffix, by_suffix_streamed, by_fim, by_fim_streamed, by_tabby, by_infill]


@pytest.mark.parametrize(("prefix", "suffix"), PLACES)
async def test_the_same_place_gives_the_same_text(prefix: str, suffix: str) -> None:
    with FakeEngine() as engine:
        async with serving(engine.url) as gateway:
            texts = [await way(gateway, prefix, suffix) for way in WAYS]
            generations = await gateway.generations(len(WAYS))

    assert len(set(texts)) == 1, texts
    assert len(texts[0]) > 5
    assert len({generation.prompt for generation in generations}) == 1
    assert len({tuple(generation.prompt_token_ids) for generation in generations}) == 1
    assert [generation.text for generation in generations] == texts
    assert {generation.protocol for generation in generations} == {"openai", "mistral", "tabby", "llamacpp"}
