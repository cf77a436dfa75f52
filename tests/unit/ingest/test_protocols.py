"""Feedback formats: what is taken, ignored and refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.protocols import continue_, rlinf
from services.ingest.protocols.common import FeedbackEvent, read_object
from services.ingest.protocols.continue_ import Ignored
from shared.web.errors import ApiError
from tests.factories import continue_event, make_generation, rlinf_event

WHO = {"key_id": "k", "project_id": "p"}


def test_stock_continue() -> None:
    generation = make_generation("a + b")
    event = continue_.parse(continue_event(generation, accepted=False, completionId="c1"), **WHO)
    assert isinstance(event, FeedbackEvent)
    assert (event.source, event.accepted, event.client_completion_id) == ("continue", False, "c1")
    assert (event.prompt, event.completion, event.display_ms) == (generation.prompt, "a + b", 4294)
    assert event.client_time == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert event.evidence["userId"] == "machine-1"
    assert not {"prompt", "prefix", "suffix", "completion", "gitRepo"} & event.evidence.keys()


def test_rlinf() -> None:
    event = rlinf.parse(rlinf_event(completionId="c1"), **WHO)
    assert (event.source, event.accepted, event.evidence["numLines"]) == ("rlinf", True, 1)


def test_timestamps_of_older_releases_are_milliseconds() -> None:
    event = continue_.parse(continue_event(timestamp=1_795_176_000_000), **WHO)
    assert isinstance(event, FeedbackEvent)
    assert event.client_time == datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"name": "chatInteraction", "data": {}}, Ignored.OTHER_EVENT),
        (continue_event(accepted=None), Ignored.NO_VERDICT),
        ({"name": "autocomplete", "level": "noCode", "data": {"accepted": True}}, Ignored.NO_CODE),
    ],
)
def test_what_is_ignored(body: dict[str, Any], why: Ignored) -> None:
    assert continue_.parse(body, **WHO) is why


WRONG: list[tuple[str, object]] = [
    ("accepted", "true"), ("accepted", 1), ("completionId", 7), ("completionId", ""), ("completionId", "x" * 201),
    ("prompt", None), ("prompt", ["a"]), ("prompt", "a\x00b"), ("completion", "\x00"), ("filepath", "\x00"),
    ("cacheHit", "no"), ("time", -1), ("time", "5"), ("timestamp", "yesterday"), ("timestamp", True),
    ("timestamp", "0001-01-01T00:00:00+14:00"), ("timestamp", 1e300), ("timestamp", {}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_wrong_values_are_refused_by_name(field: str, value: object) -> None:
    bodies = [(rlinf.parse, rlinf_event() | {field: value})]
    outside = continue_event()
    outside["data"][field] = value
    for parse, body in [*bodies, (continue_.parse, outside)]:
        with pytest.raises(ApiError) as caught:
            parse(body, **WHO)
        assert (caught.value.status, caught.value.code) == (422, "invalid_body")
        assert field in str(caught.value.param)


@pytest.mark.parametrize("field", ["completionId", "prompt", "completion", "filepath", "accepted"])
def test_missing_fields_are_refused(field: str) -> None:
    body = rlinf_event()
    del body[field]
    with pytest.raises(ApiError, match=field):
        rlinf.parse(body, **WHO)


@pytest.mark.parametrize(
    "body",
    [b"", b"nul", b"[]", b'"x"', b"1", b"{", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b'{"a":"\\ud800"}',
     b"\xff", b"[" * 5000],
)  # fmt: skip
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_object(body)
    assert caught.value.status == 400


def test_the_same_fact_has_the_same_key_in_both_formats() -> None:
    first = rlinf.parse(rlinf_event(completionId="c", accepted=True), **WHO)
    again = continue_.parse(continue_event(completionId="c", accepted=True, timestamp=5), **WHO)
    assert isinstance(again, FeedbackEvent)
    assert first.dedupe_key == again.dedupe_key
    others = [
        rlinf.parse(rlinf_event(completionId="c", accepted=False), **WHO),
        rlinf.parse(rlinf_event(completionId="d", accepted=True), **WHO),
        rlinf.parse(rlinf_event(completionId="c", accepted=True), key_id="k2", project_id="p"),
    ]
    assert first.dedupe_key not in {other.dedupe_key for other in others}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(continue_event()["data"])


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4), json_values)
def test_any_json_is_taken_ignored_or_refused(changes: dict[str, Any], other: Any) -> None:
    wrapped = continue_event()
    wrapped["data"] |= changes
    for value in (rlinf_event() | changes, wrapped, {"name": "autocomplete", "data": other}, other):
        try:
            body = orjson.dumps(value)
        except TypeError:
            continue  # lone surrogates and huge integers cannot be sent
        for parse in (rlinf.parse, continue_.parse):
            status = _refusal(parse, body)
            assert status is None or 400 <= status < 500


def _refusal(parse: Callable[..., object], body: bytes) -> int | None:
    try:
        parse(read_object(body), **WHO)
    except ApiError as error:
        return error.status
    return None
