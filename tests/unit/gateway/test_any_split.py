"""However the engine's bytes are cut on their way, the client's text and the Generation are the same."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.capture import Capture
from services.gateway.chunks import parse_chunk
from services.gateway.protocols.openai import CompletionWriter
from services.gateway.sse import DONE, SseDecoder
from shared.contracts.generation import Generation
from tests.unit.gateway.support import a_call


def event(index: int, text: str, token: int, finish: str | None = None, stop: str | None = None) -> bytes:
    logprobs = {"text_offset": [0], "token_logprobs": [-0.25], "tokens": [text], "top_logprobs": [{text: -0.25}]}
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": stop}
    ids = {"token_ids": [token], "prompt_token_ids": [5, 6] if token == 0 else None}
    chunk = {"weight_version": "2", "id": "cmpl-x", "choices": [choice | ids]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


STREAM = b"".join(
    [
        event(0, "naïve ", 0),
        event(1, "日本", 0),
        event(0, "🙂/s", 1),
        b": keep-alive\n\n",
        event(1, "語\n", 1, "length"),
        event(0, "rc/", 2, "stop", "/src/"),
        b"data: [DONE]\n\n",
    ]
)


def run(pieces: list[bytes]) -> tuple[list[str], list[Generation]]:
    call = a_call(n=2, stop=["/src/", "```"])
    decoder, capture, writer = SseDecoder(), Capture(call), CompletionWriter(call)
    text = ["", ""]
    for piece in pieces:
        for payload in decoder.feed(piece):
            for delta in parse_chunk(payload) if payload != DONE else []:
                visible = capture.add(delta)
                assert visible is not None
                chunk = writer.chunk(visible)
                for choice in json.loads(chunk)["choices"] if chunk else []:
                    text[choice["index"]] += choice["text"]
    return text, capture.generations(replica="", client_gone=False, failed=False, first_token_s=None, total_s=1.0)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_gives_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]

    text, generations = run([STREAM[a:b] for a, b in itertools.pairwise(edges)])

    assert text == ["naïve 🙂", "日本語\n"]
    assert generations == run([STREAM])[1]
    assert [generation.text for generation in generations] == text
    assert generations[0].text_offsets == [0, 6, 9]
