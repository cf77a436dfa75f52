"""Promises of the whole system, held against one run of it."""

from __future__ import annotations

import pytest

from demo.result import LEAST_JOIN_RATE, broken_promises
from tests.e2e.conftest import Loop
from tests.e2e.typed import leaks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_no_completion_failed(loop: Loop) -> None:
    assert loop.result.team.failed == []
    assert loop.result.failed_during_publishes == 0
    assert loop.result.team.shown > 100


def test_feedback_arrived_and_was_joined(loop: Loop) -> None:
    team, end = loop.result.team, loop.result.end
    assert team.events_failed == []
    assert team.events_sent == end.events_stored == end.events_resolved > 100
    assert (end.join_rate or 0) >= LEAST_JOIN_RATE


def test_feedback_became_experience_exactly_once_though_the_trainer_was_killed(loop: Loop) -> None:
    end = loop.result.end
    assert loop.trained_at_kill is not None, "the trainer was never killed"
    assert end.experience_trained > loop.trained_at_kill
    assert end.experience_sent == end.experience_done == sum(loop.result.dispositions.values())
    assert loop.result.duplicated == 0


def test_new_versions_were_published_and_served(loop: Loop) -> None:
    published = {publish.version for publish in loop.result.publishes}
    assert len(published) >= 2
    assert len(published & loop.result.versions_served) >= 2
    assert loop.result.end.live_version == loop.result.end.newest_version


def test_the_reward_on_the_fixed_evaluation_set_rose(loop: Loop) -> None:
    assert loop.result.before.failed == loop.result.after.failed == []
    assert loop.result.evaluation_gain > 0


def test_nothing_that_a_developer_typed_or_saw_stands_in_a_log(loop: Loop) -> None:
    assert len(loop.typed) > 100
    assert len(list(loop.logs.iterdir())) >= 7
    assert leaks(loop.typed, loop.logs) == {}


def test_every_promise_of_the_demo_held(loop: Loop) -> None:
    assert broken_promises(loop.result) == []
