"""Loads one server with new feedback events.

`python -m benchmarks.ingest.load URL --connections 32 --seconds 4` prints one JSON object: acknowledged (2xx) events
per second, failures and latency percentiles in ms.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson
import uvloop

from benchmarks.closed_loop import drive, percentiles_ms
from benchmarks.ingest.event import ID_CHARS, request_around_id


def new_events(url: str) -> Iterator[bytes]:
    """Requests that never repeat a completion id, not even of another run."""
    before, after = request_around_id(url)
    run = uuid.uuid4().hex[:16]
    for number in count():
        yield before + f"{run}-{number:0{ID_CHARS - 17}d}".encode() + after


def is_acknowledged(status: int, _: int) -> bool:
    """Whether the event is durable."""
    return status in (200, 204)


def figures(latencies: list[float], failures: int, took_s: float) -> dict[str, Any]:
    """Events per second and percentiles of their latencies (seconds → ms)."""
    if len(latencies) < 2:
        return {"events": len(latencies), "failures": failures + 1, "events_per_s": 0.0}
    found = {"events": len(latencies), "failures": failures, "events_per_s": len(latencies) / took_s}
    return found | percentiles_ms(latencies, 50, 99)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-s", type=float, default=1.0)
    arguments = vars(parser.parse_args())
    url = arguments.pop("url")
    measured = uvloop.run(drive(url, new_events(url), is_acknowledged, **arguments))
    found = figures(measured.latencies, measured.failures, measured.took_s)
    sys.stdout.buffer.write(orjson.dumps(found) + b"\n")


if __name__ == "__main__":
    main()
