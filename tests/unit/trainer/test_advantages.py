"""The estimators by hand, and what holds for all of them."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
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

REWARDS = st.sampled_from([0.75, -0.25, 0.0, 0.675, -0.225, 0.3])
GROUPS = st.builds(
    GroupRewards,
    st.lists(REWARDS, min_size=1, max_size=8).map(tuple),
    st.floats(-0.25, 0.75),
)
BATCHES = st.lists(GROUPS, min_size=1, max_size=8)


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
