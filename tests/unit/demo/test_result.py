"""Figures and promises of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from demo.result import broken_promises, figures, json_lines
from tests.unit.demo.builders import failure, result, snapshot


def test_thirds_of_the_reward() -> None:
    run = result([-0.25] * 30 + [0.0] * 31 + [0.75] * 30)
    assert run.reward_thirds == (-0.25, 0.75)
    assert run.reward_gain == 1.0


def test_failures_during_publishes_are_told_apart() -> None:
    run = result([0.75] * 30)
    run.team.failed.extend([failure(9.5), failure(10.0), failure(15)])
    assert run.failed_completions == 3
    assert run.failed_during_publishes == 2


def test_nothing_is_broken_in_a_good_run() -> None:
    assert broken_promises(result()) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"events_stored": 2}, "3 feedback events were sent, 2 are stored"),
        ({"events_resolved": 2}, "2 resolved"),
        ({"events_joined": 1}, "could be joined"),
        ({"experience_done": 2}, "3 experiences went to the trainer and 2 were acknowledged"),
        ({"experience_counted": 4}, "1 experiences were trained more than once"),
        ({"failed_publishes": 1}, "1 publishes failed"),
        ({"live_version": 1}, "version 1 is served, but 2 is the newest"),
    ],
)
def test_each_broken_promise_is_a_sentence(changes: dict[str, int], sentence: str) -> None:
    (broken,) = broken_promises(replace(result(), end=snapshot(3, **changes)))
    assert sentence in broken


def test_failures_and_missing_publishes_break_promises() -> None:
    run = replace(result(), publishes=[])
    run.team.failed.append(failure(1))
    assert len(broken_promises(run)) == 2


def test_figures_pool_the_runs() -> None:
    better, worse = result([-0.25] * 3 + [0.75] * 3), result([0.75] * 3 + [-0.25] * 3, feedback_to_served_s=[40.0])
    values = figures([better, worse])
    expected: dict[str, Any] = {
        "failed_completions": 0,
        "seeds_improved": 1,
        "events_sent": 12,
        "feedback_to_served_p50_s": 20.0,
        "feedback_to_served_p95_s": 40.0,
        "join_rate": 1.0,
        "versions_published": 4,
        "peak_rss_mb": 3000.0,
        "evaluation_reward_gain": 0.05,
    }
    assert values.items() >= expected.items()


def test_lines_are_json() -> None:
    lines = [json.loads(line) for line in json_lines(figures([result()]))]
    assert {line["bench"] for line in lines} == {"loop"}
    assert {"failed_completions", "reward_gain", "join_rate", "peak_rss_mb"} <= {line["figure"] for line in lines}


def test_a_run_without_any_delay_leaves_the_figure_out() -> None:
    assert "feedback_to_served_p50_s" not in figures([result(feedback_to_served_s=[])])
