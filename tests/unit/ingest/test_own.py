"""Our own feedback format: what is refused, which field is named, what makes two events the same."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.protocols.common import Caller
from services.ingest.protocols.own import EXAMPLES, MAX_EVENTS, Batch, Event, Request
from shared.web.errors import ApiError

CALLER = Caller("key-1", "team")
ID = "cmpl-1"
SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def parse(key: str | None = None, /, **body: Any) -> Request:
    return Request.parse({"completion_id": ID, "outcome": "accepted"} | body, key, CALLER)


def batch(*events: dict[str, Any], key: str | None = None) -> Request:
    return Request.parse(
        {"events": [{"completion_id": ID, "outcome": "accepted"} | event for event in events]}, key, CALLER
    )


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"completion_id": "a/b"}, "completion_id"),
    ({"completion_id": None}, "completion_id"),
    ({"choice_index": -1}, "choice_index"),
    ({"choice_index": True}, "choice_index"),
    ({"outcome": "liked"}, "outcome"),
    ({"outcome": None}, "outcome"),
    ({"outcome": "edited"}, "final_text"),
    ({"outcome": "shown", "final_text": "a"}, "final_text"),
    ({"final_text": "a"}, "final_text"),
    ({"outcome": "edited", "final_text": "a" * 20_001}, "final_text"),
    ({"outcome": "edited", "final_text": "\x00"}, "final_text"),
    ({"rating": 1.1}, "rating"),
    ({"rating": "good"}, "rating"),
    ({"rating": True}, "rating"),
    ({"accepted_chars": 0}, "accepted_chars"),
    ({"accepted_text": ""}, "accepted_text"),
    ({"accepted_text": "a", "accepted_chars": 1}, "accepted_chars"),
    ({"outcome": "dismissed", "accepted_chars": 1}, "accepted_chars"),
    ({"outcome": None, "rating": 1, "accepted_text": "a"}, "accepted_text"),
    ({"elapsed_ms": -1}, "elapsed_ms"),
    ({"language": "=cmd()"}, "language"),
    ({"event_id": "a b"}, "event_id"),
    ({"raiting": 1}, "raiting"),
]


@pytest.mark.parametrize(("changes", "field"), WRONG)
def test_the_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as single:
        parse(**changes)
    assert (single.value.status, single.value.param) == (422, field)
    with pytest.raises(ApiError) as third:
        batch({}, {}, {}, changes)
    assert (third.value.status, third.value.param) == (422, f"events.3.{field}")


@pytest.mark.parametrize("events", [[], [{"completion_id": ID, "outcome": "shown"}] * (MAX_EVENTS + 1), {}, None])
def test_how_many(events: Any) -> None:
    with pytest.raises(ApiError) as error:
        Request.parse({"events": events}, None, CALLER)
    assert error.value.param == "events"


@pytest.mark.parametrize("key", ["", "a b", "ü", "a" * 201])
def test_the_requests_key_is_short_and_visible(key: str) -> None:
    with pytest.raises(ApiError) as error:
        parse(key)
    assert error.value.param == "Idempotency-Key"


def test_the_examples_are_valid() -> None:
    for example in EXAMPLES:
        Event.model_validate(example)
    Batch.model_validate({"events": EXAMPLES})


@pytest.mark.parametrize(
    ("outcome", "accepted", "verdict"),
    [
        ("shown", None, "shown"),
        ("accepted", True, "accepted"),
        ("edited", True, "accepted"),
        ("dismissed", False, "rejected"),
        (None, None, "shown"),
    ],
)
def test_what_an_outcome_says(outcome: str | None, accepted: bool | None, verdict: str) -> None:
    final = {"final_text": "b"} if outcome == "edited" else {}
    event = parse(outcome=outcome, rating=0.5, **final).told[0].event
    assert (event.accepted, event.verdict, event.kind) == (accepted, verdict, "feedback")
    assert event.evidence["rating"] == 0.5


def test_choices_and_displays_have_their_own_ids() -> None:
    event = parse(choice_index=2, display_id="v1").told[0].event
    assert (event.named_generation_id, event.client_completion_id) == ("cmpl-1-2", "cmpl-1/v1")


def test_the_same_fact_is_the_same_event_and_another_is_not() -> None:
    same = [parse(), parse(elapsed_ms=5), parse(language="go"), batch({})]
    assert len({request.told[0].event.dedupe_key for request in same}) == 1
    others = [parse(rating=1), parse(choice_index=1), parse(display_id="d"), parse(outcome="dismissed")]
    assert len({request.told[0].event.dedupe_key for request in [*same, *others]}) == 5


def test_an_id_is_the_event_whatever_it_says() -> None:
    one, other = parse(event_id="e"), parse(event_id="e", outcome="dismissed")
    assert one.told[0].event.dedupe_key == other.told[0].event.dedupe_key
    assert one.told[0].digest != other.told[0].digest
    assert one.told[0].answer.event_id == "e"
    elsewhere = Request.parse({"completion_id": ID, "event_id": "e", "outcome": "shown"}, None, Caller("key-2", "p"))
    assert elsewhere.told[0].event.dedupe_key != one.told[0].event.dedupe_key


def test_the_requests_key_names_the_events_that_have_no_id() -> None:
    request = batch({}, {"event_id": "own"}, {}, key="k")
    assert [one.answer.event_id for one in request.told] == ["k.0", "own", "k.2"]
    assert [one.keyed for one in request.told] == [True, False, True]
    longer = batch({}, {"event_id": "own"}, {}, {}, key="k")
    assert longer.told[0].digest != request.told[0].digest
    assert longer.told[1].digest == request.told[1].digest


def test_two_events_of_a_request_cannot_have_one_id() -> None:
    assert len(batch({"event_id": "e"}, {"event_id": "e"}).told) == 2
    with pytest.raises(ApiError) as error:
        batch({"event_id": "e"}, {}, {"event_id": "e", "rating": 1})
    assert error.value.param == "events.2.event_id"


def test_secrets_are_not_kept_unless_the_project_wants_them() -> None:
    body = {"completion_id": ID, "outcome": "edited", "final_text": f'token = "{SECRET}"'}
    clean = Request.parse(body, None, CALLER).told[0].event
    assert SECRET not in clean.evidence["final_text"]
    whole = Request.parse(body, None, Caller("key-1", "team", keeps_secrets=True)).told[0].event
    assert SECRET in whole.evidence["final_text"]


@given(st.dictionaries(st.sampled_from([*Event.model_fields, "events", "x"]), st.from_type(object) | st.text()))
def test_whatever_comes_is_parsed_or_refused(body: dict[str, Any]) -> None:
    with suppress(ApiError):
        assert Request.parse(body, None, CALLER).told
