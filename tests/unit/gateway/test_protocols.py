"""Mistral's, Tabby's and llama.cpp's requests and answers, and the chat that is passed on. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.call import Origin
from services.gateway.capture import Capture
from services.gateway.protocols import llamacpp, mistral, openai, tabby
from services.gateway.protocols.chat import for_model, read_chat
from services.gateway.protocols.common import Begun, Finished
from services.gateway.settings import GatewaySettings
from shared.fim import stop_strings
from shared.web.errors import ApiError
from tests.unit.gateway.support import NOW, a_delta

ORIGIN = Origin("key-1", "default", NOW, 0.0)
FIM = "<|fim_prefix|>def f(\n<|fim_suffix|>\n<|fim_middle|>"
INFILL = {
    "input_prefix": "def f(\n",
    "input_suffix": "\n",
    "prompt": "",
    "n_predict": 32,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "id_slot": 0,
}


def begun(module: Any, body: dict[str, Any], **values: Any) -> Begun:
    found = module.begin(json.dumps(body).encode(), ORIGIN, GatewaySettings(**values))
    assert isinstance(found, Begun)
    return found


def answered(found: Begun, *texts: str, finish: str = "stop") -> tuple[list[Any], Any]:
    """What a client gets, streamed and whole, where each text is one token of choice 0, 1, …"""
    writer, call = found.writer, found.call
    capture = Capture(call)
    seen, events = [], []
    for index, text in enumerate(texts):
        for delta in (a_delta(text, index=index), a_delta("", index=index, token_ids=[9], finish_reason=finish)):
            visible = capture.add(delta)
            assert visible is not None
            seen.append(visible)
            chunk = None if call.protocol == tabby.PROTOCOL else writer.chunk(visible)
            events += [] if chunk is None else [chunk]
    finished = Finished(capture, 0.25, 0.75)
    events += [] if call.protocol == tabby.PROTOCOL else list(writer.tail(finished))
    whole = json.loads(writer.answer(finished, seen))
    return [event if event == b"[DONE]" else json.loads(event) for event in events], whole


# --- Mistral ---


def test_mistrals_request() -> None:
    body = {"model": "codestral-latest", "prompt": "def f(\n", "suffix": "\n", "stop": "x", "random_seed": 3}

    call = begun(mistral, body | {"max_tokens": 4096, "temperature": 0, "stream": True}).call

    assert (call.prompt, call.protocol, call.client_model, call.stream) == (FIM, "mistral", "codestral-latest", True)
    assert (call.sampling.max_tokens, call.sampling.temperature, call.sampling.seed) == (64, 0, 3)
    assert call.sampling.stop == ("x", *stop_strings("qwen"))
    assert begun(mistral, body | {"max_completion_tokens": 5}).call.sampling.max_tokens == 5
    assert begun(mistral, body).call.sampling.temperature == mistral.DEFAULT_TEMPERATURE
    assert begun(mistral, body | {"suffix": None}).call.prompt == FIM
    assert begun(mistral, body | {"min_tokens": 0}).call.distorting == {}
    assert begun(mistral, body | {"min_tokens": 99}).call.distorting == {"min_tokens": 64}


def test_every_streamed_chunk_of_mistrals_has_a_choice() -> None:
    """Continue reads `choices[0].delta.content` of each without looking."""
    streamed, whole = answered(begun(mistral, {"model": "m", "prompt": "a", "stream": True}), "text")

    *chunks, done = streamed
    assert done == b"[DONE]"
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["text", ""]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "stop"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[-1]["usage"] == whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert whole["choices"][0]["message"]["content"] == "text"
    assert whole["object"] == "chat.completion"


# --- Tabby ---


def test_tabbys_request() -> None:
    segments = {"prefix": "def f(\n", "suffix": "\n", "filepath": "src/a.py", "git_url": "git@host:team/repo.git"}

    call = begun(tabby, {"language": "python", "segments": segments, "user": "me", "temperature": 0, "seed": 7}).call

    assert (call.prompt, call.path, call.language, call.stream, call.n) == (FIM, "src/a.py", "python", False, 1)
    assert (call.sampling.temperature, call.sampling.seed, call.sampling.max_tokens) == (0, 7, 64)


def test_tabbys_snippets_become_other_files() -> None:
    segments = {
        "prefix": "def f(\n",
        "filepath": "src/a.py",
        "git_url": "https://host/team/repo.git",
        "declarations": [{"filepath": "src/b.py", "body": "def g(): ...\n"}],
        "relevant_snippets_from_changed_files": [{"filepath": "c.py", "body": "x = 1\n", "score": 2.5}],
        "relevant_snippets_from_recently_opened_files": [{"filepath": "d.py", "body": " \n"}],
        "clipboard": "secret",
    }

    qwen = begun(tabby, {"segments": segments}).call.prompt
    deepseek = begun(tabby, {"segments": segments}, fim_template="deepseek").call.prompt

    assert qwen == (
        "<|repo_name|>repo\n<|file_sep|>src/b.py\ndef g(): ...\n\n<|file_sep|>c.py\nx = 1\n\n"
        f"<|file_sep|>src/a.py\n{FIM}"
    )
    assert deepseek.startswith("<｜fim▁begin｜># Path: src/b.py\n# def g(): ...\n# Path: c.py\n# x = 1\ndef f(")


def test_tabbys_answer_names_the_choice() -> None:
    found = begun(tabby, {"segments": {"prefix": "a"}})

    _, whole = answered(found, "text")

    assert whole == {"id": found.call.request_id, "choices": [{"index": 0, "text": "text"}]}


@pytest.mark.parametrize(
    ("body", "is_tabby"),
    [
        (b'{"segments": {"prefix": ""}}', True),
        (b'{"prompt": "a", "segments": {}}', False),
        (b'{"prompt": "\\"segments\\""}', False),
        (b'{"prompt": "a", "logit_bias": {"segments": 1}}', False),
        (b'{"segments": null}', False),
        (b'["segments"]', False),
        (b'{"segments": ', False),
    ],
)
def test_tabbys_bodies_are_told_apart(body: bytes, is_tabby: bool) -> None:
    assert tabby.is_tabby(body) is is_tabby


def test_health_has_what_the_agent_reads() -> None:
    health = tabby.health("tabwise")

    assert {"model", "device", "arch", "cpu_info", "cpu_count", "cuda_devices", "version"} == health.keys()
    assert {"build_date", "build_timestamp", "git_sha", "git_describe"} == health["version"].keys()


# --- llama.cpp ---


def test_the_line_up_to_the_cursor_belongs_to_the_prefix() -> None:
    call = begun(llamacpp, INFILL | {"prompt": "    return ", "n_cmpl": 3}).call

    assert call.prompt == "<|fim_prefix|>def f(\n    return <|fim_suffix|>\n<|fim_middle|>"
    assert (call.n, call.sampling.top_k, call.sampling.top_p, call.sampling.max_tokens) == (3, 40, 0.99, 32)
    assert call.sampling.temperature == llamacpp.DEFAULT_TEMPERATURE


def test_samplers_say_what_counts() -> None:
    def full(**changes: Any) -> bool:
        return begun(llamacpp, INFILL | changes).call.sampling.full_support

    assert full(samplers=["infill"])
    assert full(samplers="")
    assert not full(samplers="k")
    assert not full(samplers=None)
    explored = {"exploration": {"default": {"full_support": True}}}
    assert begun(llamacpp, INFILL, **explored).call.sampling.full_support


@pytest.mark.parametrize(("seed", "sampled"), [(None, None), (-1, None), (2**32 - 1, None), (0, 0), (5, 5)])
def test_llamas_seed(seed: int | None, sampled: int | None) -> None:
    assert begun(llamacpp, INFILL | {"seed": seed}).call.sampling.seed == sampled


@pytest.mark.parametrize(("asked", "sampled"), [(None, 64), (-1, 64), (10, 10), (1000, 64)])
def test_llamas_n_predict(asked: int | None, sampled: int) -> None:
    assert begun(llamacpp, INFILL | {"n_predict": asked}).call.sampling.max_tokens == sampled


def test_extra_files() -> None:
    extra = [{"filename": "b.py", "text": "def g(): ...\n", "time": 1}, {"text": "x\n"}, {"filename": "c", "text": ""}]

    assert begun(llamacpp, INFILL | {"input_extra": extra}).call.prompt == (
        "<|repo_name|>workspace\n<|file_sep|>b.py\ndef g(): ...\n\n<|file_sep|>untitled\nx\n\n"
        f"<|file_sep|>untitled\n{FIM}"
    )


def test_infills_answer() -> None:
    _, whole = answered(begun(llamacpp, INFILL), "text")

    assert (whole["content"], whole["tokens_cached"], whole["truncated"], whole["stop"]) == ("text", 4, False, True)
    assert (whole["stop_type"], whole["tokens_predicted"], whole["tokens_evaluated"]) == ("eos", 2, 2)
    assert whole["generation_settings"]["n_ctx"] == 2048
    assert whole["timings"] == {
        "prompt_n": 2,
        "prompt_ms": 250.0,
        "prompt_per_token_ms": 125.0,
        "prompt_per_second": 8.0,
        "predicted_n": 2,
        "predicted_ms": 500.0,
        "predicted_per_token_ms": 250.0,
        "predicted_per_second": 4.0,
    }


def test_only_the_fields_that_llama_vim_wants() -> None:
    wanted = [
        "content",
        "timings/prompt_n",
        "timings/predicted_ms",
        "truncated",
        "tokens_cached",
        "no/such",
        "content/x",
    ]

    _, whole = answered(begun(llamacpp, INFILL | {"response_fields": wanted}), "text")

    assert whole == {
        "content": "text",
        "timings/prompt_n": 2,
        "timings/predicted_ms": 500.0,
        "truncated": False,
        "tokens_cached": 4,
    }


def test_several_answers_are_an_array() -> None:
    streamed, whole = answered(begun(llamacpp, INFILL | {"n_cmpl": 2, "stream": True}), "one", "two", finish="length")

    assert [(answer["index"], answer["content"], answer["stop_type"]) for answer in whole] == [
        (0, "one", "limit"),
        (1, "two", "limit"),
    ]
    assert [(event["index"], event["content"], event["stop"]) for event in streamed] == [
        (0, "one", False),
        (1, "two", False),
        (0, "", True),
        (1, "", True),
    ]


def test_a_prompt_that_was_cut_is_called_truncated() -> None:
    _, whole = answered(begun(llamacpp, INFILL | {"input_prefix": "x\n" * 10_000}), "text")

    assert whole["truncated"] is True


def test_warm_ups_are_answered_at_once() -> None:
    body = json.dumps(INFILL | {"n_predict": 0, "samplers": []}).encode()

    answer = llamacpp.begin(body, ORIGIN, GatewaySettings())

    assert isinstance(answer, bytes)
    whole = json.loads(answer)
    assert (whole["content"], whole["tokens_cached"], whole["timings"]["predicted_n"]) == ("", 0, 0)


@pytest.mark.parametrize(
    ("text", "indent", "kept"),
    [
        ("a)\n    b\nc\n", 4, "a)\n    b\n"),
        ("a)\n    b\n\n    c", 4, "a)\n    b\n\n    c"),
        ("  a\n b", 0, "  a\n b"),
        ("a\n\tb\nc", 1, "a\n\tb\n"),
        ("a\n  ", 4, "a\n  "),
        ("", 4, ""),
        ("no newline", 4, "no newline"),
    ],
)
def test_the_indentation_ends_it(text: str, indent: int, kept: str) -> None:
    assert text[: llamacpp.within_indent(text, indent)] == kept


@settings(deadline=None)
@given(st.text(st.sampled_from("a \n\t"), max_size=30), st.integers(0, 4))
def test_what_is_kept_never_goes_left(text: str, indent: int) -> None:
    kept = text[: llamacpp.within_indent(text, indent)]

    assert text.startswith(kept)
    for line in kept.split("\n")[1:]:
        assert not line.strip() or len(line) - len(line.lstrip(" \t")) >= indent


def test_enough() -> None:
    late = begun(llamacpp, INFILL | {"t_max_predict_ms": 250}).call.enough
    indented = begun(llamacpp, INFILL | {"n_indent": 4}).call.enough

    assert late is not None
    assert indented is not None
    assert (late("a\nb", 0.3), late("a\nb", 0.2), late("ab", 0.3)) == (True, False, False)
    assert (indented("a\nb", 0.0), indented("a\n    b", 9.0)) == (True, False)
    assert begun(llamacpp, INFILL).call.enough is None


# --- what all have in common ---

WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (mistral, {"prompt": "a"}, "model"),
    (mistral, {"model": "m", "prompt": ["a"]}, "prompt"),
    (mistral, {"model": "m", "prompt": "a", "temperature": -1}, "temperature"),
    (tabby, {"segments": {}}, "segments.prefix"),
    (tabby, {"segments": {"prefix": "a", "declarations": [{"filepath": "x"}]}}, "segments.declarations.0.body"),
    (tabby, {"segments": {"prefix": "a"}, "seed": "x"}, "seed"),
    (llamacpp, {"input_prefix": 5}, "input_prefix"),
    (llamacpp, {"n_cmpl": 99}, "n_cmpl"),
    (llamacpp, {"input_extra": [{"filename": "a"}]}, "input_extra.0.text"),
]


@pytest.mark.parametrize(("module", "body", "param"), WRONG)
def test_a_malformed_field_is_named(module: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        begun(module, body)

    assert (caught.value.status, caught.value.param) == (422, param)


@settings(deadline=None)
@given(st.binary(max_size=100) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode))
def test_nonsense_is_422(body: bytes) -> None:
    for module in (mistral, tabby, llamacpp):
        with pytest.raises(ApiError) as caught:
            module.begin(body, ORIGIN, GatewaySettings())
        assert caught.value.status == 422
    with pytest.raises(ApiError):
        read_chat(body)


def test_chat_is_only_given_another_model() -> None:
    value = read_chat(b'{"model": "gpt", "messages": [], "tools": [{"x": 1.50}], "stream": true}')

    assert json.loads(for_model(value, "tabwise")) == {
        "model": "tabwise",
        "messages": [],
        "tools": [{"x": 1.5}],
        "stream": True,
    }


@pytest.mark.parametrize("body", [b"{}", b'{"model": ""}', b'{"model": 5}', b"[]", b"nul"])
def test_chat_needs_a_model(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_chat(body)

    assert caught.value.status == 422


def test_openai_models() -> None:
    listed = openai.model_list(["tabwise", "alias"], 5)

    assert [(card["id"], card["root"]) for card in listed["data"]] == [("tabwise", "tabwise"), ("alias", "tabwise")]


# --- logprobs ---


def test_logprobs_keep_step_with_a_text_that_is_cut() -> None:
    """The stop string comes in two tokens, the first of which begins in the text that is shown."""
    body = {"model": "m", "prompt": "p", "logprobs": 1, "stop": ["END"], "stream": True}
    pieces = ["ab", "cE", "ND"]

    streamed, whole = _cut(begun(openai, body), pieces, "END"), _cut(begun(openai, body), pieces, "END", whole=True)

    texts = [event["choices"][0]["text"] for event in streamed]
    assert texts == ["ab", "c", ""]
    tokens = [event["choices"][0]["logprobs"]["tokens"] for event in streamed]
    assert tokens == [["ab"], ["cE"], []]
    assert whole["choices"][0]["text"] == "abc"
    assert whole["choices"][0]["logprobs"]["tokens"] == ["ab", "cE"]
    assert whole["choices"][0]["logprobs"]["text_offset"] == [0, 2]


def _cut(found: Begun, pieces: list[str], stop: str, *, whole: bool = False) -> Any:
    capture, seen, events = Capture(found.call), [], []
    for piece in pieces:
        last = piece is pieces[-1]
        visible = capture.add(
            a_delta(piece, finish_reason="stop" if last else None, stop_reason=stop if last else None)
        )
        assert visible is not None
        seen.append(visible)
        chunk = None if whole else found.writer.chunk(visible)
        events += [json.loads(chunk)] if chunk else []
    return json.loads(found.writer.answer(Finished(capture, 0.1, 0.2), seen)) if whole else events


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abEND\n"), max_size=4), min_size=1, max_size=8))
def test_every_token_stands_where_it_says(pieces: list[str]) -> None:
    body = {"model": "m", "prompt": "p", "logprobs": 0, "stop": ["END"], "stream": True}
    text = "".join(pieces)
    if "END" in text:
        pieces, text = [text[: text.index("END") + 3]], text[: text.index("END")]
        entry = _cut(begun(openai, body), pieces, "END", whole=True)["choices"][0]
    else:
        entry = _cut(begun(openai, body), [*pieces, ""], "", whole=True)["choices"][0]

    logprobs = entry["logprobs"]
    assert entry["text"] == text
    for piece, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        shown = text[offset : offset + len(piece)]
        assert piece.startswith(shown)
