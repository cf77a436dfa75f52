"""Lanes, their shares and micro-batches: which tokens run, and that none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.learner.packing import Lane, make_lane, micro_batches, plan_lanes, share_out
from services.trainer.learner_api import TrainGroup, TrainSample


def sample(tokens: list[int], credited: int, advantage: float = 1.0) -> TrainSample:
    return TrainSample(
        token_ids=tokens,
        behaviour_logprobs=[-float(t) for t in tokens],
        credited_tokens=credited,
        advantage=advantage,
    )


def group(prompt: list[int], samples: list[TrainSample]) -> TrainGroup:
    return TrainGroup(group_id="g", prompt_token_ids=prompt, temperature=0.5, samples=samples)


def test_lane_runs_only_what_the_loss_needs() -> None:
    """Tokens behind the credited ones do not run, nor does the last credited one: nothing is predicted from it."""
    lane = make_lane(g := group([1, 2, 3], [sample([11, 12, 13, 14], 3, 0.5), sample([21], 1, -2.0)]), g.samples)

    assert lane.token_ids == [1, 2, 3, 11, 12]
    assert lane.position_ids == [0, 1, 2, 3, 4]
    assert lane.segment_ids == [0, 0, 0, 1, 1]
    assert lane.predict_at == [2, 3, 4, 2]
    assert lane.targets == [11, 12, 13, 21]
    assert lane.behaviour_logprobs == [-11.0, -12.0, -13.0, -21.0]
    assert lane.advantages == [0.5, 0.5, 0.5, -2.0]
    assert lane.temperatures == [0.5] * 4
    assert lane.sample_lengths == [3, 1]


def test_positions_restart_for_each_sample() -> None:
    lane = make_lane(g := group([1, 2], [sample([5, 6, 7], 3), sample([8, 9, 7], 3)]), g.samples)

    assert lane.position_ids == [0, 1, 2, 3, 2, 3]
    assert lane.segment_ids == [0, 0, 1, 1, 2, 2]


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="empty prompt"):
        plan_lanes([group([], [sample([1], 1)])], 100)


def test_more_credit_than_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="credited_tokens is 3"):
        plan_lanes([group([1], [sample([1, 2], 3)])], 100)


def test_long_group_is_split_and_repeats_its_prompt() -> None:
    lanes = plan_lanes([group([1, 2, 3], [sample([5] * 4, 4) for _ in range(5)])], max_tokens=9)

    assert [lane.length for lane in lanes] == [9, 9, 6]
    assert sum(lane.credited for lane in lanes) == 20


def test_oversized_sample_gets_a_lane_of_its_own() -> None:
    lanes = plan_lanes([group([1] * 10, [sample([5, 6], 2), sample([7, 8], 2)])], max_tokens=4)

    assert [lane.length for lane in lanes] == [11, 11]


_lengths = st.lists(st.integers(1, 60), min_size=1, max_size=30)


def _lane(length: int) -> Lane:
    return Lane([1] * length, [0] * length, [0] * length)


@given(_lengths, st.integers(1, 4))
def test_shares_hold_every_lane_once(lengths: list[int], ranks: int) -> None:
    lanes = [_lane(length) for length in lengths]

    shares = share_out(lanes, ranks)

    assert len(shares) == ranks
    assert sorted(id(lane) for share in shares for lane in share) == sorted(map(id, lanes))
    loads = [sum(lane.length for lane in share) for share in shares]
    assert max(loads) - min(loads) <= max(lengths)


@given(_lengths, st.integers(1, 100))
def test_micro_batches_hold_every_lane_within_the_budget(lengths: list[int], budget: int) -> None:
    lanes = [_lane(length) for length in lengths]

    stacks, rows = (micro_batches(lanes, budget, stacked) for stacked in (True, False))

    for batches in (stacks, rows):
        assert sorted(id(lane) for batch in batches for lane in batch) == sorted(map(id, lanes))
    for batch in stacks:
        assert len(batch) == 1 or len(batch) * max(lane.length for lane in batch) <= budget
    for batch in rows:
        assert len(batch) == 1 or sum(lane.length for lane in batch) <= budget
    assert len(rows) <= len(stacks)


def test_rows_are_filled_where_there_is_room() -> None:
    batches = micro_batches([_lane(length) for length in (50, 30, 60, 40, 20)], 100, stacked=False)

    assert [[lane.length for lane in batch] for batch in batches] == [[60, 40], [50, 30, 20]]
