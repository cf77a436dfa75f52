"""From experience to the learner's mini-batches."""

from __future__ import annotations

import math

import pytest

from services.trainer import batches
from services.trainer.advantages import dr_grpo, grpo, raw
from services.trainer.batches import Limits, plan_minibatch, scored_group, triage
from services.trainer.tracker import Value
from shared.contracts.experience import Experience
from shared.contracts.generation import Sampling
from tests.unit.trainer.factories import experience, sample

LIMITS = Limits(max_staleness=2, max_row_tokens=64, vocabulary=128)


def test_what_can_be_trained_on_passes() -> None:
    assert triage(experience(version=3), 5, LIMITS) is None


def test_too_old_is_stale() -> None:
    assert triage(experience(version=2), 5, LIMITS) == "stale"


@pytest.mark.parametrize(
    "broken",
    [
        experience(shown=sample("x").model_copy(update={"logprobs": [-0.5]})),
        experience(shown=sample("x").model_copy(update={"logprobs": [-0.5, math.nan]})),
        experience(shown=sample("x").model_copy(update={"credited_tokens": 3})),
        experience(shown=sample("x").model_copy(update={"token_ids": [1, 128]})),
        experience(shown=sample("x").model_copy(update={"token_ids": [1, -1]})),
        experience(shown=sample("x" * 60)),
        experience(prompt_token_ids=[]),
        experience(sampling=Sampling(temperature=0.0, max_tokens=8)),
        experience(sampling=Sampling(temperature=0.8, top_p=0.9, max_tokens=8)),
    ],
    ids=["lengths", "nan", "credit", "vocabulary", "negative", "long", "no prompt", "greedy", "top_p"],
)
def test_what_cannot_be_trained_on_is_invalid(broken: Experience) -> None:
    assert triage(broken, 0, LIMITS) == "invalid"


def test_siblings_are_scored_and_unknown_ones_masked() -> None:
    rejected = experience("return x", accepted=False)
    group = scored_group(rejected, [sample("return x"), sample("return y"), sample("")], LIMITS)
    assert [scored.reward for scored in group.samples] == [-0.25, -0.25, None, 0.0]


def test_natural_siblings_count_too() -> None:
    shown = experience("return x", siblings=[sample("return x")])
    assert [scored.reward for scored in scored_group(shown, [], LIMITS).samples] == [0.75, pytest.approx(0.675)]


def test_a_sibling_that_does_not_fit_is_left_out() -> None:
    bad = sample("return x").model_copy(update={"logprobs": [math.nan] * 9})
    assert len(scored_group(experience(), [bad], LIMITS).samples) == 1


def test_tokens_end_with_the_credit() -> None:
    one = experience("return x", accepted=False)
    silent = sample("", credited=1)
    [group] = plan_minibatch([scored_group(one, [silent], LIMITS)], dr_grpo, {}).groups
    shown, sibling = group.samples
    assert (shown.credited_tokens, len(shown.token_ids)) == (9, 9)
    assert sibling.token_ids == [0]
    assert sibling.advantage == pytest.approx(0.125)
    cut = one.model_copy(update={"shown": sample("return x and more", credited=8)})
    [group] = plan_minibatch([scored_group(cut, [silent], LIMITS)], dr_grpo, {}).groups
    assert len(group.samples[0].token_ids) == len(group.samples[0].behaviour_logprobs) == 8


def test_zero_advantages_are_counted_not_trained() -> None:
    one = experience("return x", accepted=False, reward=0.0)
    plan = plan_minibatch([scored_group(one, [], LIMITS)], raw, {})
    assert (plan.groups, plan.trained, plan.no_signal) == ([], [], [one.experience_id])
    assert plan.zero_advantages == 1


def test_a_lone_completion_is_measured_against_the_tracker() -> None:
    one = experience("return x", accepted=False)
    group = scored_group(one, [], LIMITS)
    plan = plan_minibatch([group], grpo, {group.bucket: Value(0.5, 100.0)})
    assert (plan.lone, plan.equal, plan.zero_advantages) == (1, 0, 0)
    assert plan.groups[0].samples[0].advantage == pytest.approx(-1.0, abs=1e-3)


def test_a_first_minibatch_of_equal_rewards_still_teaches() -> None:
    groups = [scored_group(experience("return x", accepted=False), [], LIMITS) for _ in range(3)]
    plan = plan_minibatch(groups, grpo, {})
    assert [group.samples[0].advantage for group in plan.groups] == [pytest.approx(-1.0)] * 3


def test_equal_rewards_are_measured_against_the_tracker() -> None:
    one = experience("return x", accepted=False)
    group = scored_group(one, [sample("return x")] * 3, LIMITS)
    plan = plan_minibatch([group], grpo, {group.bucket: Value(0.5, 100.0)})
    assert (plan.lone, plan.equal, plan.zero_advantages) == (0, 1, 0)
    assert all(one.advantage < 0 for one in plan.groups[0].samples)


def test_another_sibling_temperature_makes_a_group_of_its_own() -> None:
    one = experience("return x", accepted=False)
    group = scored_group(one, [sample("")], LIMITS, drawn_temperature=1.0)
    plan = plan_minibatch([group], grpo, {})
    assert [(one.temperature, len(one.samples)) for one in plan.groups] == [(0.8, 1), (1.0, 1)]
    assert plan.trained == [one.experience_id]


def test_a_sample_without_credit_counts_for_the_baseline_only() -> None:
    one = experience("return x", accepted=False)
    plan = plan_minibatch([scored_group(one, [sample("", credited=0)], LIMITS)], grpo, {})
    assert len(plan.rewards) == 2
    assert [len(group.samples) for group in plan.groups] == [1]


def test_reasons_are_the_ledgers() -> None:
    assert {batches.STALE, batches.INVALID, batches.NO_SIGNAL, batches.TRAINED} == {
        "stale", "invalid", "no_signal", "trained",
    }  # fmt: skip
