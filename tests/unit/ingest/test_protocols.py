"""Feedback formats: what is taken, ignored and refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.protocols import continue_, rlinf, tabby
from services.ingest.protocols.common import Caller, FeedbackEvent, read_object
from services.ingest.protocols.continue_ import Ignored
from shared.web.errors import ApiError
from tests.factories import continue_event, make_generation, rlinf_event, tabby_event

WHO = Caller("k", "p")


def test_stock_continue() -> None:
    generation = make_generation("a + b")
    event = continue_.parse(continue_event(generation, accepted=False, completionId="c1"), WHO)
    assert isinstance(event, FeedbackEvent)
    assert (event.source, event.accepted, event.client_completion_id) == ("continue", False, "c1")
    digest = hashlib.sha256(generation.prompt.encode()).digest()
    assert (event.prompt_sha256, event.completion, event.display_ms) == (digest, "a + b", 4294)
    assert event.client_time == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert event.evidence["userId"] == "machine-1"
    assert not {"prompt", "prefix", "suffix", "completion", "gitRepo"} & event.evidence.keys()


def test_rlinf() -> None:
    event = rlinf.parse(rlinf_event(completionId="c1"), WHO)
    assert (event.source, event.accepted, event.evidence["numLines"]) == ("rlinf", True, 1)


def test_timestamps_of_older_releases_are_milliseconds() -> None:
    event = continue_.parse(continue_event(timestamp=1_795_176_000_000), WHO)
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
    assert continue_.parse(body, WHO) is why


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
            parse(body, WHO)
        assert (caught.value.status, caught.value.code) == (422, "invalid_body")
        assert field in str(caught.value.param)


@pytest.mark.parametrize("field", ["completionId", "prompt", "completion", "filepath", "accepted"])
def test_missing_fields_are_refused(field: str) -> None:
    body = rlinf_event()
    del body[field]
    with pytest.raises(ApiError, match=field):
        rlinf.parse(body, WHO)


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
    first = rlinf.parse(rlinf_event(completionId="c", accepted=True), WHO)
    again = continue_.parse(continue_event(completionId="c", accepted=True, timestamp=5), WHO)
    assert isinstance(again, FeedbackEvent)
    assert first.dedupe_key == again.dedupe_key
    others = [
        rlinf.parse(rlinf_event(completionId="c", accepted=False), WHO),
        rlinf.parse(rlinf_event(completionId="d", accepted=True), WHO),
        rlinf.parse(rlinf_event(completionId="c", accepted=True), Caller("k2", "p")),
    ]
    assert first.dedupe_key not in {other.dedupe_key for other in others}


def tabby_parsed(event: str, query: str | None = None, **changes: Any) -> FeedbackEvent:
    parsed = tabby.parse(tabby_event(event=event, completion_id="cmpl-1", **changes), query, WHO)
    assert isinstance(parsed, FeedbackEvent)
    return parsed


def test_tabby_names_the_exact_choice() -> None:
    first, second = tabby_parsed("view"), tabby_parsed("select", choice_index=2)
    assert (first.named_generation_id, second.named_generation_id) == ("cmpl-1", "cmpl-1-2")
    assert (first.accepted, second.accepted, tabby_parsed("dismiss").accepted) == (None, True, False)
    assert (first.client_completion_id, first.display_ms) == ("cmpl-1/view-1", 1200)
    assert tabby_parsed("view", view_id=None).client_completion_id == "cmpl-1"
    assert (first.prompt_sha256, first.completion) == (None, "")


def test_tabby_tells_a_partial_accept_in_the_query_or_the_body() -> None:
    assert tabby_parsed("select", "line").select_kind == "line"
    assert tabby_parsed("select", select_kind="word").select_kind == "word"
    assert tabby_parsed("select", "line", select_kind="line").select_kind == "line"
    assert tabby_parsed("dismiss", "line").select_kind is None


def test_tabby_events_are_the_same_fact_where_all_that_they_name_is_the_same() -> None:
    one = tabby_parsed("select").dedupe_key
    assert tabby_parsed("select", elapsed=9999).dedupe_key == one
    others = [
        tabby_parsed("view"), tabby_parsed("dismiss"), tabby_parsed("select", "line"), tabby_parsed("select", "word"),
        tabby_parsed("select", choice_index=1), tabby_parsed("select", view_id="view-2"),
        tabby_parsed("select", view_id=None),
    ]  # fmt: skip
    assert len({one, *(other.dedupe_key for other in others)}) == len(others) + 1


@pytest.mark.parametrize("event", ["hover", "viewed", "SELECT"])
def test_tabby_events_of_other_types_are_ignored(event: str) -> None:
    assert tabby.parse({"type": event}, None, WHO) is tabby.Ignored.OTHER_EVENT


@pytest.mark.parametrize(
    ("field", "value"),
    [("type", 1), ("type", ""), ("completion_id", ""), ("completion_id", "a/b"), ("completion_id", "a\n"),
     ("completion_id", None), ("choice_index", -1), ("choice_index", "0"), ("choice_index", 1.5),
     ("choice_index", 1024), ("choice_index", True), ("view_id", 7), ("view_id", "x" * 201), ("view_id", "\x00"),
     ("elapsed", -1), ("elapsed", "1"), ("select_kind", "file")],
)  # fmt: skip
def test_wrong_values_of_tabby_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ApiError) as caught:
        tabby.parse(tabby_event(event="select") | {field: value}, None, WHO)
    assert (caught.value.status, caught.value.param) == (422, field)


@pytest.mark.parametrize("query", ["file", "", "word"])
def test_a_wrong_or_contradicting_select_kind_in_the_query_is_refused(query: str) -> None:
    with pytest.raises(ApiError, match="select_kind"):
        tabby.parse(tabby_event(event="select", select_kind="line"), query, WHO)


def test_prefix_and_suffix_give_the_digest_of_the_prompt_that_the_gateway_makes() -> None:
    event = rlinf.parse(rlinf_event(prefix="a = ", suffix="\n"), Caller("k", "p", "codellama"))
    assert event.rendered_sha256 == hashlib.sha256(b"<PRE> a =  <SUF>\n <MID>").digest()
    assert rlinf.parse(rlinf_event(prefix=None), WHO).rendered_sha256 is None
    with pytest.raises(ApiError, match="suffix"):
        rlinf.parse(rlinf_event(suffix=5), WHO)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(continue_event()["data"] | tabby_event())


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4), json_values)
def test_any_json_is_taken_ignored_or_refused(changes: dict[str, Any], other: Any) -> None:
    wrapped = continue_event()
    wrapped["data"] |= changes
    for value in (
        rlinf_event() | changes,
        tabby_event() | changes,
        wrapped,
        {"name": "autocomplete", "data": other},
        other,
    ):
        try:
            body = orjson.dumps(value)
        except TypeError:
            continue  # lone surrogates and huge integers cannot be sent
        for parse in (rlinf.parse, continue_.parse, lambda body, who: tabby.parse(body, None, who)):
            status = _refusal(parse, body)
            assert status is None or 400 <= status < 500


def _refusal(parse: Callable[..., object], body: bytes) -> int | None:
    try:
        parse(read_object(body), WHO)
    except ApiError as error:
        return error.status
    return None
