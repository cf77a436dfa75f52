from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.warmstart.rewards.mix import RewardError, RewardMix, RewardSpec, weighted
from services.trainer.warmstart.rewards.protocol import Candidate
from shared.kit.errors import SettingsError
from tests.unit.trainer.warmstart.rewards.builders import candidate


class Fixed:
    """Says what it was told to say."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self._values = list(values)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        return self._values


class Broken:
    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        raise ZeroDivisionError("by zero")


def of(*specs: Mapping[str, Any]) -> RewardMix:
    return RewardMix.of([RewardSpec.model_validate(spec) for spec in specs])


async def test_a_weighted_sum() -> None:
    mix = of({"name": "exact_match", "weight": 0.25}, {"name": "edit_similarity", "weight": 0.5})
    asked = [candidate("abcd", reference="abcd"), candidate("abcx", reference="abcd")]
    assert await mix(asked) == [0.75, pytest.approx(0.375)]
    scores = await mix.score(asked)
    assert scores.parts == {"exact_match": [1.0, 0.0], "edit_similarity": [1.0, 0.75]}
    assert scores.figures() == {
        "reward/total_mean": pytest.approx(0.5625),
        "reward/total_known_share": 1.0,
        "reward/exact_match_mean": 0.5,
        "reward/exact_match_known_share": 1.0,
        "reward/edit_similarity_mean": 0.875,
        "reward/edit_similarity_known_share": 1.0,
    }


async def test_the_same_reward_twice_is_numbered() -> None:
    mix = of({"name": "exact_match"}, {"name": "exact_match", "options": {"first_line": True}})
    scores = await mix.score([candidate("a\nb", reference="a\nc")])
    assert scores.parts == {"exact_match": [0.0], "exact_match_2": [1.0]}
    assert scores.total == [1.0]


def test_what_is_unknown_at_the_whole_place_is_left_out() -> None:
    """Weights 1 and 3: the known part takes the whole weight of 4."""
    assert weighted([candidate("a"), candidate("b")], [1, 3], [[0.5, 1.0], [None, None]]) == [2.0, 4.0]


def test_what_is_unknown_for_some_of_a_place_masks_those() -> None:
    samples = [candidate("a"), candidate("b"), candidate("c", path="other.py")]
    assert weighted(samples, [1, 1], [[0.5, 1.0, 1.0], [None, 1.0, None]]) == [None, 2.0, 2.0]


def test_nothing_known_is_unknown() -> None:
    assert weighted([candidate()], [1], [[None]]) == [None]


async def test_figures_of_unknown_rewards_have_no_mean() -> None:
    scores = await RewardMix({"judge": (1.0, Fixed([None]))}).score([candidate()])
    assert scores.figures() == {"reward/total_known_share": 0.0, "reward/judge_known_share": 0.0}


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1)), min_size=1, max_size=5))
def test_a_total_is_within_the_sum_of_the_weights(parts: list[tuple[float, float]]) -> None:
    (total,) = weighted([candidate()], [weight for weight, _ in parts], [[value] for _, value in parts])
    assert total is not None
    assert 0 <= total <= sum(weight for weight, _ in parts) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.5], "reward mine gave 1.5; it must be 0 to 1, or None where it cannot be told"),
        ([float("nan")], "reward mine gave nan"),
        ([], "reward mine gave 0 values for 1 candidates"),
    ],
)
async def test_a_plug_in_that_breaks_its_contract_is_named(values: list[float], sentence: str) -> None:
    with pytest.raises(RewardError, match=sentence):
        await RewardMix({"mine": (1.0, Fixed(values))})([candidate()])


async def test_a_plug_in_that_fails_is_named_and_its_error_kept() -> None:
    with pytest.raises(RewardError, match="reward mine failed: ZeroDivisionError: by zero") as failed:
        await RewardMix({"mine": (1.0, Broken()), "other": (1.0, Fixed([1.0]))})([candidate()])
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"name": "edit_similarty"},
            "rewards\\[0\\]: there is no reward 'edit_similarty'; known are edit_similarity, exact_match, llm_judge, "
            "syntax, unit_tests",
        ),
        ({"name": "syntax", "options": {"blank": 2}}, "rewards\\[0\\].options.blank: Input should be less than or"),
        ({"name": "syntax", "options": {"blnk": 2}}, "rewards\\[0\\].options.blnk: Extra inputs are not permitted"),
    ],
)
def test_wrong_entries_are_one_sentence(spec: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        of(spec)


def test_no_reward_at_all_is_refused() -> None:
    with pytest.raises(SettingsError, match="rewards: name at least one"):
        RewardMix.of([])
