from __future__ import annotations

import math
from typing import Any

import pytest

from services.gateway.capture import Capture
from services.gateway.chunks import Delta
from shared.contracts.generation import Generation, PolicySpan, Sampling
from tests.unit.gateway.support import a_call, a_delta


def captured(*deltas: Delta, client_gone: bool = False, failed: bool = False, **call: Any) -> Generation:
    capture = Capture(a_call(**call))
    for delta in deltas:
        capture.add(delta)
    return capture.generations(
        replica="engine:8000", client_gone=client_gone, failed=failed, first_token_s=0.1, total_s=0.2
    )[0]


def test_a_whole_completion_can_be_trained_on() -> None:
    generation = captured(a_delta("re"), a_delta("turn"), a_delta("", finish_reason="stop", pieces=["<|endoftext|>"]))

    assert generation.untrainable is None
    assert (generation.text, generation.token_ids) == ("return", [7, 7, 7])
    assert generation.logprobs == [-0.5] * 3
    assert generation.text_offsets == [0, 2, 6]
    assert generation.policy_spans == [PolicySpan(version=3, start=0, end=3)]
    assert generation.prompt_token_ids == [1, 2]


def test_a_stop_string_is_sampled_but_not_shown() -> None:
    generation = captured(
        a_delta("a`"), a_delta("``", finish_reason="stop", stop_reason="```", pieces=["``"]), stop=["```"]
    )

    assert (generation.text, generation.text_offsets, generation.stop_reason) == ("a", [0, 2], "```")


def test_the_end_tokens_own_text_is_not_shown() -> None:
    end = a_delta("<|endoftext|>", finish_reason="stop")

    assert captured(a_delta("a"), end).text == "a"


def test_offsets_of_several_tokens_in_one_chunk() -> None:
    merged = a_delta("cdef", token_ids=[1, 2], offsets=[40, 43], pieces=["cde", "f"])

    assert captured(a_delta("ab"), merged).text_offsets == [0, 2, 5]


def test_versions_change_in_mid_completion() -> None:
    merged = a_delta("yz", token_ids=[1, 2, 3], version="3", versions=[("3", 1, 2), ("4", 2, 4)])
    generation = captured(a_delta("x"), merged, a_delta("q", version="4"))

    assert generation.policy_spans == [PolicySpan(version=3, start=0, end=2), PolicySpan(version=4, start=2, end=5)]
    assert generation.policy_version == 3
    assert generation.untrainable is None


def test_default_is_the_base_model() -> None:
    assert captured(a_delta(version="default")).policy_spans == [PolicySpan(version=0, start=0, end=1)]


@pytest.mark.parametrize("version", [None, "", "v3", "-1", "3.0", "²"])
def test_an_unknown_version_is_not_guessed(version: str | None) -> None:
    generation = captured(a_delta(), a_delta(version=version))

    assert generation.untrainable == "no_policy_version"
    assert generation.policy_spans == [PolicySpan(version=3, start=0, end=1)]


@pytest.mark.parametrize("bad", [None, math.nan, -math.inf, math.inf, 0.5, -9999.0, "x"])
def test_a_bad_logprob_is_kept_out(bad: Any) -> None:
    generation = captured(a_delta(), a_delta(logprobs=[bad]))

    assert (generation.untrainable, generation.logprobs) == ("bad_logprobs", [])
    assert Generation.model_validate_json(generation.model_dump_json()) == generation


def test_rounding_above_zero_is_zero() -> None:
    assert captured(a_delta(logprobs=[1e-7])).logprobs == [0.0]


@pytest.mark.parametrize("values", [[], [-0.5, -0.5]])
def test_a_length_mismatch_is_bad(values: list[float]) -> None:
    assert captured(a_delta(logprobs=values)).untrainable == "bad_logprobs"


def test_without_token_ids() -> None:
    assert captured(a_delta(token_ids=None)).untrainable == "no_token_ids"
    assert captured().untrainable == "no_token_ids"
    assert captured(a_delta(prompt_token_ids=None)).untrainable == "no_token_ids"


@pytest.mark.parametrize("change", [{"temperature": 0}, {"top_p": 0.9}, {"top_k": 5}])
def test_truncated_sampling(change: dict[str, Any]) -> None:
    sampling = Sampling(**({"temperature": 1.0, "max_tokens": 4} | change))

    assert captured(a_delta(), sampling=sampling).untrainable == "truncated_sampling"


def test_distorted_sampling() -> None:
    assert captured(a_delta(), distorting={"presence_penalty": 1.0}).untrainable == "distorted_sampling"


def test_a_client_that_hung_up_leaves_what_was_sampled() -> None:
    generation = captured(a_delta("return"), a_delta(" `"), client_gone=True, stop=["```"])

    assert (generation.text, generation.finish_reason, generation.client_gone) == ("return `", "abort", True)
    assert generation.untrainable is None


def test_hanging_up_after_the_end_changes_nothing() -> None:
    generation = captured(a_delta("x", finish_reason="length"), client_gone=True)

    assert (generation.finish_reason, generation.client_gone) == ("length", False)


def test_a_failure_is_not_trained_on() -> None:
    generation = captured(a_delta("x"), failed=True)

    assert (generation.finish_reason, generation.untrainable) == ("error", "engine_error")


def test_choices_are_kept_apart() -> None:
    capture = Capture(a_call(n=2))
    for delta in (
        a_delta("a"),
        a_delta("b", index=1),
        a_delta("c", index=1, finish_reason="stop"),
        a_delta("?", index=2),
    ):
        capture.add(delta)
    first, second = capture.generations(replica="", client_gone=True, failed=False, first_token_s=None, total_s=1.0)

    assert (first.generation_id, first.text, first.client_gone) == ("cmpl-1", "a", True)
    assert (second.generation_id, second.text, second.client_gone) == ("cmpl-1-1", "b", False)
