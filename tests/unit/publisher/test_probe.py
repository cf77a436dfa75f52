"""Logprobs against logprobs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from services.publisher.probe import max_difference, prompt_logprobs


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ([-1.0, -2.0], [-1.0, -2.5], 0.5),
        ([-1.0], [-1.0], 0.0),
        ([-1.0], [None], math.inf),
        ([-1.0], [math.nan], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([-math.inf], [-math.inf], math.inf),
        ([-1.0, -2.0], [-1.0], math.inf),
        ([], [], math.inf),
    ],
)
def test_max_difference(expected: list[float], found: list[float | None], difference: float) -> None:
    assert max_difference(expected, found) == difference


def answer(*entries: object) -> dict[str, Any]:
    return {"choices": [{"prompt_logprobs": list(entries)}]}


def test_the_logprob_of_each_token_is_found() -> None:
    given = answer(None, {"8": {"logprob": -0.5}, "3": {"logprob": -0.1}}, {"9": {"logprob": None}})
    assert prompt_logprobs(given, [7, 8, 9]) == [-0.5, None]


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"choices": []},
        answer(None),
        answer(None, {"1": {"logprob": -1}}, {"2": {"logprob": -1}}, None),
        answer(None, {"9": {"logprob": -1}}, {"2": {"logprob": -1}}),
        {"choices": [{"prompt_logprobs": None}]},
    ],
)
def test_an_answer_of_another_form(given: object) -> None:
    with pytest.raises(ValueError, match=r"logprobs|zip"):
        prompt_logprobs(given, [7, 1, 2])
