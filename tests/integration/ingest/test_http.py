"""The HTTP face: what is answered, that refused feedback leaves nothing behind, and that code stays out of sight."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.ingest.app import create_app
from services.ingest.settings import IngestSettings
from tests.factories import continue_event, rlinf_event, tabby_event
from tests.integration.ingest.conftest import HEADERS, Room

SUBMIT, CONTINUE, TABBY = "/api/training/submit", "/v1/events/continue", "/v1/events/tabby"
DEAD_URL = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"


def raw(changes: str, field: str = "time") -> bytes:
    """RLinf's body with a field written by hand, which JSON libraries refuse to write."""
    body = json.dumps(rlinf_event() | {field: "HERE"})
    return body.replace('"HERE"', changes).encode()


async def post(room: Room, body: bytes, path: str = SUBMIT, **headers: str) -> httpx.Response:
    return await room.http.post(path, content=body, headers=HEADERS | headers)


def assert_error(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


async def test_submit_answers_as_rlinf_does(room: Room) -> None:
    answer = await post(room, orjson.dumps(rlinf_event()))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["queue_position"], body.keys()) == (
        "submitted",
        0,
        {"status", "message", "queue_position"},
    )
    assert await room.value("SELECT count(*) FROM feedback_events") == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"name": "chatFeedback", "schema": "0.2.0", "data": {"anything": 1}}, "other_event"),
        (continue_event(accepted=None), "no_verdict"),
        ({"name": "autocomplete", "level": "noCode", "data": {"accepted": True}}, "unjoinable"),
    ],
)
async def test_what_says_nothing_is_taken_and_counted(room: Room, body: dict[str, Any], reason: str) -> None:
    answer = await post(room, orjson.dumps(body), CONTINUE)
    assert (answer.status_code, answer.content) == (204, b"")
    assert await room.value("SELECT count(*) FROM feedback_events") == 0
    assert room.metric("tabwise_ingest_events_ignored_total", reason=reason) == 1


MALFORMED = [
    (b"", 400, "invalid_json"),
    (b"{", 400, "invalid_json"),
    (b"[]", 400, "invalid_json"),
    (b"\xff\xfe", 400, "invalid_json"),
    (raw("NaN"), 400, "invalid_json"),
    (raw("Infinity"), 400, "invalid_json"),
    (raw("1e999"), 400, "invalid_json"),
    (raw('"\\ud800"', "prompt"), 400, "invalid_json"),
    (raw('"\\u0000"', "prompt"), 422, "invalid_body"),
    (raw('"\\u0000"', "completion"), 422, "invalid_body"),
    (raw('"\\u0000"', "completionId"), 422, "invalid_body"),
    (raw('"yes"', "accepted"), 422, "invalid_body"),
    (raw("-1"), 422, "invalid_body"),
    (b"{}", 422, "invalid_body"),
]


@pytest.mark.parametrize(("body", "status", "code"), MALFORMED)
async def test_malformed_bodies(room: Room, body: bytes, status: int, code: str) -> None:
    assert_error(await post(room, body), status, code)
    assert room.metric("tabwise_ingest_refused_total", code=code) == 1
    assert room.metric("tabwise_ingest_requests_total", route=SUBMIT, status=str(status)) == 1
    assert await room.value("SELECT count(*) FROM feedback_events") == 0


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Basic dGVzdC10b2tlbg=="}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer bound-key", "X-Project-ID": "other"}, 403, "wrong_project"),
        (HEADERS | {"X-Project-ID": "../../etc"}, 422, "invalid_project"),
    ],
)
@pytest.mark.parametrize("path", [SUBMIT, CONTINUE, TABBY])
async def test_keys_and_projects(room: Room, path: str, headers: dict[str, str], status: int, code: str) -> None:
    answer = await room.http.post(path, json=rlinf_event(), headers=headers)
    assert_error(answer, status, code)
    assert room.metric("tabwise_ingest_refused_total", code=code) == 1
    assert await room.value("SELECT count(*) FROM feedback_events") == 0


async def test_the_body_limit_holds_with_and_without_a_declared_length(room: Room) -> None:
    body = orjson.dumps(rlinf_event(prompt="x" * 200_000))

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]

    assert_error(await post(room, body), 413, "body_too_large")
    chunked = await room.http.post(SUBMIT, content=chunks(), headers=HEADERS)
    assert_error(chunked, 413, "body_too_large")
    assert room.metric("tabwise_ingest_refused_total", code="body_too_large") == 2


async def test_unknown_routes_and_methods_have_the_one_error_shape(room: Room) -> None:
    assert_error(await room.http.get("/nothing"), 404, "not_found")
    assert_error(await room.http.get(SUBMIT), 405, "method_not_allowed")


async def test_without_the_ledger_feedback_is_answered_503_and_counted(clean_redis: str) -> None:
    app = create_app(IngestSettings(database_url=DEAD_URL, redis_url=clean_redis, api_keys="test-token"))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as http:
        answer = await http.post(SUBMIT, json=rlinf_event(), headers=HEADERS)
        assert_error(answer, 503, "ledger_unavailable")
        assert answer.headers["retry-after"]
        assert_error(await http.post(CONTINUE, json=continue_event(), headers=HEADERS), 503, "ledger_unavailable")
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 503
        assert_error(await http.get("/v1/stats", headers=HEADERS), 503, "ledger_unavailable")
        assert 'tabwise_ingest_refused_total{code="ledger_unavailable"} 2.0' in (await http.get("/metrics")).text


async def test_ready_and_documented(room: Room) -> None:
    assert (await room.http.get("/ready")).status_code == 200
    api = (await room.http.get("/openapi.json")).json()
    schema = api["paths"][CONTINUE]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "completionId" in schema["properties"]["data"]["properties"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted(continue_event()["data"] | tabby_event())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=3), junk=st.binary(max_size=30))
async def test_no_body_is_ever_answered_500(room: Room, changes: dict[str, Any], junk: bytes) -> None:
    wrapped = continue_event()
    wrapped["data"] |= changes
    bodies = ((SUBMIT, rlinf_event() | changes), (CONTINUE, wrapped), (TABBY, tabby_event(event="select") | changes))
    for path, value in bodies:
        body = json.dumps(value).encode()  # writes NaN, infinities and lone surrogates as clients might
        for content in (body, body[:-1], body.replace(b'"', junk, 3)):
            stored = await room.value("SELECT count(*) FROM feedback_events")
            answer = await post(room, content, path)
            assert answer.status_code in {200, 204, 400, 422}
            if answer.status_code >= 400:
                assert await room.value("SELECT count(*) FROM feedback_events") == stored
