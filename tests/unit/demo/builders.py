"""Run results for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clients.developer.evaluation import EvaluationReport
from clients.developer.report import FailedCompletion, TeamReport
from demo.ledger import Publish, Snapshot, Verdict, Version
from demo.result import RunResult

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment of the run."""
    return START + timedelta(seconds=seconds)


def snapshot(events: int, **changes: int) -> Snapshot:
    """A loop in which everything arrived."""
    whole = Snapshot(
        events_stored=events,
        events_joined=events,
        events_resolved=events,
        events_pending=0,
        outcomes_open=0,
        outbox_unsent=0,
        experience_sent=events,
        experience_done=events,
        experience_trained=events,
        experience_counted=events,
        minibatches=2,
        newest_version=2,
        live_version=2,
        publishes=2,
        failed_publishes=0,
    )
    return replace(whole, **changes)


def evaluation(reward: float) -> EvaluationReport:
    """Of 100 moments."""
    return EvaluationReport(100, 100, 90, 0.4, 0.3, 0.35, 0.8, reward, 0.02, 0.1, 5.0)


def result(rewards: Sequence[float] = (-0.25, 0.75, 0.75), **changes: Any) -> RunResult:
    """A run with one suggestion a second and publishes after a third and two thirds of it."""
    count = len(rewards)
    team = TeamReport(START.timestamp(), 1, 8, 10.0, "harbor", events_sent=count)
    whole = RunResult(
        seed=1,
        folder=Path("var/demo-1"),
        team=team,
        end=snapshot(count),
        verdicts=[Verdict(at(index), reward > 0, reward, 0) for index, reward in enumerate(rewards)],
        publishes=[
            Publish(1, at(count / 3 - 1), at(count / 3), 0.07, 0.0),
            Publish(2, at(count * 2 / 3 - 1), at(count * 2 / 3), 0.07, 0.0),
        ],
        versions=[
            Version(0, count, count, 1, 0.1, 0, None, None),
            Version(1, count, count, 1, 0.1, 32, at(count / 3), 0.07),
        ],
        versions_served={0, 1, 2},
        feedback_to_served_s=[10.0, 20.0, 30.0],
        dispositions={"trained": count},
        before=evaluation(0.1),
        after=evaluation(0.15),
        peak_rss_mb=3000.0,
        seconds=400.0,
    )
    return replace(whole, **changes)


def failure(seconds: float) -> FailedCompletion:
    """A completion that failed at that moment."""
    return FailedCompletion(at(seconds).timestamp(), "dev00", "http", 502, "bad gateway", 0.1)
