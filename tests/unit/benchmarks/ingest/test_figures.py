"""What `make bench-ingest` prints, and that all servers store the same event."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from benchmarks.ingest.event import ID_CHARS, KEY, body, row
from benchmarks.ingest.figures import Results, lines
from benchmarks.ingest.load import figures, new_events
from benchmarks.ingest.naive import Event, columns
from services.ingest.intake_queries import EventToStore, _row
from services.ingest.protocols import continue_
from services.ingest.protocols.common import Caller, FeedbackEvent
from shared.kit.clock import utc_now

CALLER = Caller(row()["key_id"], "default")


def test_ratios_are_those_of_the_same_round() -> None:
    results = Results()
    for ours, naive, pgbench in ((500.0, 100.0, 1000.0), (50.0, 10.0, 80.0), (400.0, 90.0, 900.0)):
        for peer, rate in (("ours", ours), ("naive", naive), ("pgbench", pgbench)):
            results.add(peer, 256, {"events_per_s": rate, "p50_ms": 1.0, "p99_ms": 2.0, "failures": 0})
    rates, p50, p99, failures = lines(results, [256])
    assert rates == {
        "bench": "ingest",
        "figure": "events_per_s",
        "connections": 256,
        "ours": 400.0,
        "naive": 90.0,
        "pgbench": 900.0,
        "ratio_naive": 5.0,
        "ratio_pgbench": 0.5,
    }
    assert (p50["figure"], p99["ours"]) == ("p50_ms", 2.0)
    assert failures["ours"] == 0


def test_a_peer_that_was_not_measured_is_null() -> None:
    results = Results()
    results.add("ours", 1, figures([0.001, 0.002, 0.003], 0, 1.0))
    rates = json.loads(json.dumps(lines(results, [1])[0]))
    assert (rates["ours"], rates["naive"], rates["ratio_naive"]) == (3.0, None, None)


def test_no_answer_at_all_is_a_failure() -> None:
    assert figures([], 0, 1.0) == {"events": 0, "failures": 1, "events_per_s": 0.0}


def test_every_request_is_a_new_event_of_the_same_size() -> None:
    requests = [*islice(new_events("http://127.0.0.1:1"), 3), *islice(new_events("http://127.0.0.1:1"), 1)]
    assert len(set(requests)) == 4
    assert len({len(request) for request in requests}) == 1
    head, _, content = requests[0].partition(b"\r\n\r\n")
    assert f"Content-Length: {len(content)}".encode() in head
    assert len(json.loads(content)["data"]["completionId"]) == ID_CHARS


def _stored(event: FeedbackEvent | continue_.Ignored) -> dict[str, Any]:
    assert isinstance(event, FeedbackEvent)
    return _row(EventToStore(event, utc_now()))


def test_all_of_them_store_the_same_row() -> None:
    ours = _stored(continue_.parse(body("x"), CALLER))
    assert {name: ours[name] for name in row()} == row()
    naive = columns(Event.model_validate(body("x")), CALLER.key_id)
    changing = {"received_at", "next_attempt_at"}
    assert {name: ours[name] for name in naive if name not in changing} == {
        name: value for name, value in naive.items() if name not in changing
    }
    assert KEY not in json.dumps(ours, default=str)
