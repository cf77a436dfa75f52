"""Evidence gathered from an outcome, its events and what was observed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from services.ingest.evidence import Evidence
from services.ingest.evidence_queries import Known, Said, gather
from shared.db.models import OutcomeRow

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def outcome(state: str = "rejected", shown_text: str = "a + b", **changes: Any) -> OutcomeRow:
    columns = {"outcome_id": "o", "state": state, "shown_text": shown_text, "first_event_at": NOW}
    return OutcomeRow(**(columns | changes))


def test_of_a_plain_accept_little_is_known() -> None:
    assert gather(outcome("accepted"), Known([Said("verdict", True)])) == Evidence(
        "accepted", shown_chars=5, settled=False, superseded=False
    )


@pytest.mark.parametrize(
    ("said", "explicit"),
    [
        ([], None),
        ([Said("verdict", False)], False),
        ([Said("dismiss", False)], None),
        ([Said("feedback", False)], True),
        ([Said("feedback", True)], None),
        ([Said("verdict", False), Said("feedback", False)], True),
        ([Said("view", None), Said("verdict", False)], False),
    ],
)
def test_who_dismissed(said: list[Said], explicit: bool | None) -> None:
    assert gather(outcome(), Known(said)).explicit is explicit


def test_settled_text_tells_whether_it_was_typed_out() -> None:
    assert gather(outcome(), Known(settled="a + b")).typed_out is True
    other = gather(outcome(reference_kind="settled", reference_text="total"), Known())
    assert (other.typed_out, other.settled) == (False, True)
    assert gather(outcome(), Known()).typed_out is None
    assert gather(outcome("accepted"), Known(settled="a + b")).typed_out is None


def test_what_was_observed_goes_before_what_is_concluded() -> None:
    known = Known(settled="total", seen={"typed_out": True, "reversed": False}, retention={30: 0.5}, shown_again=True)
    evidence = gather(outcome(), known)
    assert (evidence.typed_out, evidence.reversed_, evidence.superseded) == (True, False, True)
    assert evidence.retention == {30: 0.5}


def test_the_last_word_of_the_developer_counts() -> None:
    known = Known([Said("feedback", True, 0.5), Said("feedback", True, -1.0, 0.25), Said("feedback", True)])
    evidence = gather(outcome("accepted"), known)
    assert (evidence.rating, evidence.edited) == (-1.0, 0.25)


def test_white_space_is_silence_and_a_part_is_its_own_text() -> None:
    assert gather(outcome(shown_text=" \n"), Known()).shown_chars == 0
    evidence = gather(outcome("accepted", " a\n", accepted_part="word"), Known())
    assert (evidence.part, evidence.shown_chars) == ("word", 1)


def test_a_final_text_is_compared_with_the_suggestion() -> None:
    said = [Said("feedback", True, final_text=" a + c\n")]
    assert gather(outcome("accepted"), Known(said)).edited == pytest.approx(0.8)
    assert gather(outcome("accepted"), Known([Said("feedback", True, final_text="")])).edited == 0.0
    assert gather(outcome("accepted", ""), Known([Said("feedback", True, final_text=" ")])).edited == 1.0
