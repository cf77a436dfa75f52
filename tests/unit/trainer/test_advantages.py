"""The estimators by hand, and what holds for all of them."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, pstdev
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.advantages import (
    ESTIMATORS,
    GroupRewards,
    dr_grpo,
    grpo,
    is_zero,
    raw,
    reinforce_pp,
    rloo,
    tracker,
)
from services.trainer.settings import AdvantageName

REWARDS = st.sampled_from([0.75, -0.25, 0.0, 0.675, -0.225, 0.3])
GROUPS = st.builds(
    GroupRewards,
    st.lists(REWARDS, max_size=8).map(tuple),
    st.floats(-0.25, 0.75),
)
BATCHES = st.lists(GROUPS, min_size=1, max_size=8)
FEWER = settings(max_examples=30)


def group(*rewards: float, value: float = 0.0) -> GroupRewards:
    return GroupRewards(rewards, value)


def test_grpo_by_hand() -> None:
    [advantages] = grpo([group(1.0, 0.0, 0.0, 1.0)])
    assert advantages == pytest.approx([1, -1, -1, 1], abs=1e-4)


def test_dr_grpo_by_hand() -> None:
    assert dr_grpo([group(0.75, -0.25, 0.0, 0.0)]) == [pytest.approx([0.625, -0.375, -0.125, -0.125])]


def test_rloo_by_hand() -> None:
    assert rloo([group(0.75, -0.25, 0.25)]) == [pytest.approx([0.75, -0.75, 0.0])]


def test_reinforce_pp_is_over_the_minibatch() -> None:
    assert reinforce_pp([group(1.0), group(0.0), group(1.0, 0.0)]) == [
        pytest.approx([1], abs=1e-4),
        pytest.approx([-1], abs=1e-4),
        pytest.approx([1, -1], abs=1e-4),
    ]


def test_tracker_by_hand() -> None:
    # residuals 0.3 and -0.4: root mean square sqrt(0.125)
    scale = math.sqrt(0.125)
    result = tracker([group(0.75, value=0.45), group(-0.25, value=0.15)])
    assert result == [pytest.approx([0.3 / scale], abs=1e-4), pytest.approx([-0.4 / scale], abs=1e-4)]


def test_raw_is_the_reward() -> None:
    assert raw([group(0.75, -0.25)]) == [[0.75, -0.25]]


@pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])
@pytest.mark.parametrize("alone", [group(0.75, value=0.25), group(-0.25, -0.25, -0.25, value=0.25)])
def test_without_a_group_baseline_the_tracker_gives_one(estimator, alone) -> None:  # type: ignore[no-untyped-def]
    [advantages, _] = estimator([alone, group(0.75, -0.25)])
    sign = 1 if alone.rewards_G[0] > alone.value else -1
    assert all(sign * advantage > 0.1 for advantage in advantages)


def test_a_minibatch_of_failures_stays_negative() -> None:
    assert all(value < 0 for [value] in tracker([group(-0.25, value=0.2), group(-0.25, value=0.1)]))


def test_what_the_tracker_predicts_well_is_not_blown_up() -> None:
    [[advantage]] = tracker([group(-0.25, value=-0.24)])
    assert advantage == pytest.approx(-0.1)


@given(BATCHES)
def test_one_finite_advantage_per_known_reward(batch: list[GroupRewards]) -> None:
    for estimator in ESTIMATORS.values():
        given_advantages = estimator(batch)
        assert [len(group) for group in given_advantages] == [len(group.rewards_G) for group in batch]
        assert all(math.isfinite(value) for group in given_advantages for value in group)


@given(BATCHES)
def test_a_better_completion_of_a_group_never_gets_less(batch: list[GroupRewards]) -> None:
    for estimator in ESTIMATORS.values():
        for one, advantages in zip(batch, estimator(batch), strict=True):
            pairs = sorted(zip(one.rewards_G, advantages, strict=True))
            assert all(later[1] >= earlier[1] - 1e-9 for earlier, later in itertools.pairwise(pairs))


@given(GROUPS)
def test_group_baselines_are_centred(one: GroupRewards) -> None:
    if one.has_baseline:
        for estimator in (grpo, dr_grpo, rloo):
            assert sum(estimator([one])[0]) == pytest.approx(0, abs=1e-6)


@given(BATCHES, REWARDS, st.floats(-0.25, 0.75))
def test_zero_only_at_the_baseline(batch: list[GroupRewards], reward: float, value: float) -> None:
    alone = GroupRewards((reward,), value)
    [[advantage], *_] = grpo([alone, *batch])
    assert is_zero(advantage) == (abs(reward - value) < 1e-4) or abs(reward - value) < 1e-3


GROUP_BASELINES = pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])


def moved(one: GroupRewards, shift: float, scale: float = 1.0) -> GroupRewards:
    return GroupRewards(tuple(scale * reward + shift for reward in one.rewards_G), scale * one.value + shift)


def flat(given_advantages: list[list[float]]) -> list[float]:
    return [value for group in given_advantages for value in group]


def test_each_name_of_the_setting_is_an_estimator() -> None:
    assert set(get_args(AdvantageName)) == set(ESTIMATORS)


def test_unequal_groups_by_hand() -> None:
    """Rewards 0.75, 0, 0: mean 0.25, deviation sqrt(0.125); the others' means are 0, 0.375, 0.375."""
    deviation = math.sqrt(0.125)
    one = group(0.75, 0.0, 0.0)
    assert grpo([one]) == [pytest.approx([0.5 / deviation, -0.25 / deviation, -0.25 / deviation], abs=1e-4)]
    assert dr_grpo([one]) == [pytest.approx([0.5, -0.25, -0.25])]
    assert rloo([one]) == [pytest.approx([0.75, -0.375, -0.375])]


def test_equal_rewards_that_the_tracker_expects_are_zero_and_seen_to_be() -> None:
    for estimator in (grpo, dr_grpo, rloo, tracker):
        assert all(map(is_zero, flat(estimator([group(0.3, 0.3, value=0.3)]))))


def test_one_reward_for_all_of_the_minibatch_falls_back_to_the_tracker() -> None:
    batch = [group(0.75, value=0.25), group(0.75, 0.75, value=0.5)]
    assert reinforce_pp(batch) == tracker(batch)


def test_groups_without_known_rewards_get_none_and_change_nothing() -> None:
    for estimator in ESTIMATORS.values():
        assert estimator([]) == []
        assert estimator([group()]) == [[]]
        assert estimator([group(), group(0.75, -0.25)])[1] == estimator([group(0.75, -0.25)])[0]


@GROUP_BASELINES
@FEWER
@given(GROUPS, st.floats(-2, 2))
def test_group_baselines_do_not_see_a_shift(estimator, one, shift) -> None:  # type: ignore[no-untyped-def]
    if one.has_baseline:
        assert flat(estimator([moved(one, shift)])) == pytest.approx(flat(estimator([one])), abs=1e-3)


@FEWER
@given(BATCHES, st.floats(-2, 2))
def test_a_shift_of_all_rewards_and_values_changes_only_raw(batch: list[GroupRewards], shift: float) -> None:
    later = [moved(one, shift) for one in batch]
    for name, estimator in ESTIMATORS.items():
        expected = [value + shift * (name == "raw") for value in flat(estimator(batch))]
        assert flat(estimator(later)) == pytest.approx(expected, abs=1e-3)


@FEWER
@given(GROUPS, st.floats(0.5, 4))
def test_scale_cancels_where_it_is_divided_out(one: GroupRewards, scale: float) -> None:
    if one.has_baseline:
        larger = moved(one, 0.0, scale)
        assert flat(grpo([larger])) == pytest.approx(flat(grpo([one])), abs=1e-3)
        assert flat(reinforce_pp([larger])) == pytest.approx(flat(reinforce_pp([one])), abs=1e-3)
        assert flat(rloo([larger])) == pytest.approx([scale * value for value in flat(rloo([one]))])


@FEWER
@given(GROUPS)
def test_rloo_is_dr_grpo_times_g_over_g_minus_one(one: GroupRewards) -> None:
    if one.has_baseline:
        factor = len(one.rewards_G) / (len(one.rewards_G) - 1)
        assert flat(rloo([one])) == pytest.approx([factor * value for value in flat(dr_grpo([one]))], abs=1e-12)


@FEWER
@given(BATCHES)
def test_reinforce_pp_is_standardised_over_the_minibatch(batch: list[GroupRewards]) -> None:
    if len({reward for one in batch for reward in one.rewards_G}) > 1:
        values = flat(reinforce_pp(batch))
        assert fmean(values) == pytest.approx(0, abs=1e-6)
        assert pstdev(values) == pytest.approx(1, abs=1e-3)


@FEWER
@given(BATCHES, st.randoms())
def test_the_order_of_groups_does_not_matter(batch: list[GroupRewards], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(batch)))
    random.shuffle(order)
    for estimator in ESTIMATORS.values():
        before, after = estimator(batch), estimator([batch[place] for place in order])
        assert [pytest.approx(before[place]) for place in order] == after
