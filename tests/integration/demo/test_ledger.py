"""The demo's reading of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from demo.ledger import Ledger
from shared.db.engine import make_engine, unit_of_work
from shared.db.models import (
    Base,
    DeploymentRow,
    ExperienceRow,
    FeedbackEventRow,
    GenerationRow,
    OutcomeRow,
    TrainedExperienceRow,
    TrainingRoundRow,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def generation(name: str, version: int) -> GenerationRow:
    return GenerationRow(
        generation_id=name, request_id=name, choice_index=0, created_at=START, key_id="k", project_id="p",
        protocol="openai", client_model="m", replica="r", prompt="", prompt_sha256=b"", prompt_token_ids=[], text="",
        token_ids=[], logprobs=[], text_offsets=[], finish_reason="stop", sampling={}, policy_version=version,
        policy_spans=[], client_gone=False, total_s=0.1,
    )  # fmt: skip


def event(name: str, status: str = "joined", seconds: float = 0) -> FeedbackEventRow:
    joined = name if status == "joined" else None
    return FeedbackEventRow(
        dedupe_key=name, source="continue", project_id="p", key_id="k", client_completion_id=name, accepted=True,
        prompt_sha256=b"", completion="", filepath="", cache_hit=False, received_at=at(seconds), evidence={},
        status=status, next_attempt_at=START, generation_id=joined, outcome_id=joined,
    )  # fmt: skip


def outcome(name: str, accepted: bool, seconds: float, resolved: bool = True) -> OutcomeRow:
    return OutcomeRow(
        outcome_id=name, generation_id=name, key_id="k", project_id="p", client_completion_id=name,
        state="accepted" if accepted else "rejected", shown_text="", credited_tokens=1, first_event_at=at(seconds),
        last_event_at=at(seconds), resolves_at=at(seconds), resolved_at=at(seconds + 1) if resolved else None,
        reward=(0.75 if accepted else -0.25) if resolved else None,
    )  # fmt: skip


def experience(name: str, version: int, seconds: float) -> ExperienceRow:
    return ExperienceRow(
        experience_id=name, outcome_id=name, generation_id=name, project_id="p", key_id="k", policy_version=version,
        label="accepted", reward=0.75, feedback_at=at(seconds),
    )  # fmt: skip


def training_round(name: str, version: int | None, trained: int) -> TrainingRoundRow:
    return TrainingRoundRow(
        round_id=name, version=version, parent_version=0, checkpoint=None, started_at=START, committed_at=START,
        minibatches=1 if version else 0, trained=trained, stats={},
    )  # fmt: skip


def deployment(version: int, seconds: float, status: str = "live") -> DeploymentRow:
    return DeploymentRow(
        version=version, replica="r", status=status, rolled_back=False, started_at=at(seconds - 1),
        finished_at=at(seconds), pause_s=0.1,
    )  # fmt: skip


@pytest.fixture
def ledger(clean_db: str) -> Iterator[Ledger]:
    reader = Ledger(clean_db)
    yield reader
    reader.close()


@pytest.fixture
def filled(clean_db: str, ledger: Ledger) -> Ledger:
    """`a` trained in version 1, `b` in version 2, `c` put aside, `d` still open, and one event that fits nothing."""
    rows: list[list[Base]] = [
        [generation("a", 0), generation("b", 1), generation("c", 1), generation("d", 1), generation("unseen", 1)],
        [outcome("a", True, 10), outcome("b", False, 20), outcome("c", True, 15), outcome("d", True, 40, False)],
        [event("a"), event("b"), event("c"), event("d"), event("lost", "unmatched"), event("new", "pending")],
        [experience("a", 0, 10), experience("b", 1, 20), experience("c", 1, 15)],
        [training_round("r1", 1, 1), training_round("r2", 2, 1), training_round("r3", None, 0)],
        [
            TrainedExperienceRow(experience_id="a", round_id="r1", disposition="trained"),
            TrainedExperienceRow(experience_id="b", round_id="r2", disposition="trained"),
            TrainedExperienceRow(experience_id="c", round_id="r3", disposition="stale"),
            deployment(1, 25, "failed"), deployment(2, 50), deployment(1, 60),
        ],
    ]  # fmt: skip
    engine = make_engine(clean_db)
    for batch in rows:
        with unit_of_work(engine) as session:
            session.add_all(batch)
    engine.dispose()
    return ledger


def test_snapshot_of_nothing(ledger: Ledger) -> None:
    assert ledger.snapshot().waiting == 0
    assert ledger.snapshot().join_rate is None


def test_snapshot_counts_every_stage(filled: Ledger) -> None:
    now = filled.snapshot()
    assert (now.events_stored, now.events_joined, now.events_resolved, now.events_pending) == (6, 4, 4, 1)
    assert now.join_rate == 4 / 5
    assert now.outcomes_open == 1
    assert (now.experience_sent, now.experience_done, now.experience_trained, now.experience_counted) == (3, 3, 2, 2)
    assert (now.minibatches, now.newest_version, now.live_version) == (2, 2, 1)
    assert (now.publishes, now.failed_publishes) == (2, 1)
    assert now.waiting == 1 + 1 + 1


def test_verdicts_are_final_and_in_order(filled: Ledger) -> None:
    assert [(verdict.accepted, verdict.reward, verdict.version) for verdict in filled.verdicts()] == [
        (True, 0.75, 0),
        (True, 0.75, 1),
        (False, -0.25, 1),
    ]


def test_time_until_served_counts_the_first_version_that_contains_it(filled: Ledger) -> None:
    assert sorted(filled.feedback_to_served_s()) == [30.0, 40.0]


def test_versions_know_what_they_did(filled: Ledger) -> None:
    base, first, second = filled.versions()
    assert (base.version, base.completions, base.suggestions, base.acceptance, base.published_at) == (
        0,
        1,
        1,
        1.0,
        None,
    )
    assert (first.completions, first.suggestions, first.acceptance, first.reward, first.trained) == (4, 2, 0.5, 0.25, 1)
    assert (second.completions, second.acceptance, second.published_at) == (0, None, at(50))
    assert filled.versions_served() == {0, 1}


def test_dispositions(filled: Ledger) -> None:
    assert filled.dispositions() == {"trained": 2, "stale": 1}
