from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.call import Call, Origin, engine_body
from services.gateway.protocols import openai
from services.gateway.settings import GatewaySettings
from shared.fim import FAMILIES, render, stop_strings
from shared.web.errors import ApiError
from tests.unit.gateway.support import NOW

ORIGIN = Origin("key-1", "default", NOW, 0.0)


def parsed(body: dict[str, Any], **settings: Any) -> Call:
    request = openai.parse(json.dumps({"model": "m", "prompt": "p"} | body).encode())
    return openai.to_call(request, ORIGIN, GatewaySettings(**settings))


def refusal(body: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parsed(body)
    return caught.value


def test_continues_request() -> None:
    call = parsed({"max_tokens": 4096, "temperature": 0.01, "stream": True, "stop": ["<|endoftext|>", "/src/", "```"]})

    assert call.sampling.max_tokens == 64
    assert call.sampling.temperature == 0.01
    assert call.sampling.full_support
    body = engine_body(call, "tabwise")
    assert body["model"] == "tabwise"
    assert (body["stream"], body["return_token_ids"], body["logprobs"]) == (True, True, 0)
    assert (body["top_p"], body["top_k"], body["repetition_penalty"]) == (1.0, -1, 1.0)
    assert body["skip_special_tokens"] is False


@pytest.mark.parametrize(("asked", "sampled"), [(None, 1.0), (0, 0.0), (0.001, 0.01), (0.7, 0.7)])
def test_the_temperature_is_the_clients(asked: float | None, sampled: float) -> None:
    assert parsed({"temperature": asked}).sampling.temperature == sampled


def test_the_temperature_can_be_overridden() -> None:
    assert parsed({"temperature": 0.01}, temperature_override=0.9).sampling.temperature == 0.9
    assert parsed({"temperature": 0}, temperature_override=0.9).sampling.temperature == 0


@pytest.mark.parametrize(("asked", "sampled"), [(None, 64), (1, 1), (64, 64), (10**9, 64)])
def test_max_tokens_are_clamped(asked: int | None, sampled: int) -> None:
    assert parsed({"max_tokens": asked}).sampling.max_tokens == sampled


def test_top_p_and_top_k_are_passed_on_and_recorded() -> None:
    call = parsed({"top_p": 0.9, "top_k": 20, "seed": 3, "n": 4, "logprobs": 2})

    body = engine_body(call, "tabwise")
    assert (body["top_p"], body["top_k"], body["seed"], body["n"], body["logprobs"]) == (0.9, 20, 3, 4, 2)
    assert not call.sampling.full_support


def test_a_suffix_makes_qwens_prompt() -> None:
    call = parsed({"prompt": "a {suffix}", "suffix": "b {prefix}"})

    assert call.prompt == "<|fim_prefix|>a {suffix}<|fim_suffix|>b {prefix}<|fim_middle|>"
    assert parsed({"suffix": None}).prompt == "p"
    assert call.sampling.stop == stop_strings("qwen")


def test_at_the_end_of_a_file_it_is_continues_prompt() -> None:
    assert parsed({"suffix": ""}).prompt == "<|fim_prefix|>p<|fim_suffix|>\n<|fim_middle|>"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_familys_prompt(family: str) -> None:
    call = parsed({"prompt": "a", "suffix": "b", "stop": ["x", stop_strings(family)[0]]}, fim_template=family)

    assert call.prompt == render(family, "a", "b")
    assert call.sampling.stop[:1] == ("x",)
    assert sorted(call.sampling.stop) == sorted({"x", *stop_strings(family)})
    assert engine_body(call, "tabwise")["skip_special_tokens"] is False


def test_too_many_stop_strings_beside_the_models_own() -> None:
    stop = [f"s{number}" for number in range(60)]

    assert parsed({"stop": stop}).sampling.stop == tuple(stop)
    assert refusal({"stop": stop, "suffix": "b"}).param == "stop"


def test_a_list_of_one_prompt() -> None:
    assert parsed({"prompt": ["only"]}).prompt == "only"


def test_neutral_penalties_do_not_distort() -> None:
    assert parsed({"presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}}).distorting == {}
    assert parsed({"presence_penalty": 0.5, "logit_bias": {"5": -1}}).distorting == {
        "presence_penalty": 0.5,
        "logit_bias": {"5": -1.0},
    }


@pytest.mark.parametrize(
    "body",
    [
        {"echo": True},
        {"best_of": 3},
        {"use_beam_search": True},
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": []},
        {"prompt": ""},
        {"stream_options": {"include_usage": True}},
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(body: dict[str, Any]) -> None:
    error = refusal(body)

    assert (error.status, error.param) == (400, next(iter(body)))
    assert str(error.param) in error.message


@pytest.mark.parametrize(
    "body",
    [
        {"model": None},
        {"prompt": None},
        {"prompt": 5},
        {"n": 0},
        {"n": 17},
        {"max_tokens": 0},
        {"max_tokens": "many"},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"stop": [""]},
        {"stop": [5]},
        {"seed": 2**64},
        {"logprobs": 21},
        {"logit_bias": {"5": float("inf")}},
    ],
)
def test_a_malformed_field_is_named(body: dict[str, Any]) -> None:
    error = refusal(body)

    assert error.status == 422
    assert str(error.param).startswith(next(iter(body)))


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_nonsense_is_422(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        openai.parse(body)

    assert caught.value.status == 422
    json.dumps(caught.value.body())


def test_unknown_fields_are_ignored() -> None:
    assert parsed({"user": "me", "frobnicate": 1}).prompt == "p"
