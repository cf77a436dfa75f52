"""A closed-loop load of new feedback events: each connection sends its next event when the last one is acknowledged.

`python -m benchmarks.ingest.load URL --connections 32 --seconds 4` prints one JSON object: acknowledged (2xx) events
per second, failures and latency percentiles in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop

from benchmarks.ingest.event import ID_CHARS, request_around_id


@dataclass
class Measured:
    """What all connections saw. Seconds."""

    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    counting: bool = False
    stopping: bool = False


class Sending(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: Iterator[bytes], measured: Measured, done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._measured = measured
        self._done = done
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._measured.counting:
            if self._parser.get_status_code() in (200, 204):
                self._measured.latencies.append(time.perf_counter() - self._sent)
            else:
                self._measured.failures += 1
        if self._measured.stopping:
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._measured.stopping:
            self._measured.failures += 1
        if not self._done.done():
            self._done.set_result(None)


def new_events(url: str) -> Iterator[bytes]:
    """Requests that never repeat a completion id, not even of another run."""
    before, after = request_around_id(url)
    run = uuid.uuid4().hex[:16]
    for number in count():
        yield before + f"{run}-{number:0{ID_CHARS - 17}d}".encode() + after


async def drive(url: str, *, connections: int, seconds: float, warm_s: float) -> dict[str, Any]:
    """Load `url` and return the figures."""
    parts, measured, loop = urlsplit(url), Measured(), asyncio.get_running_loop()
    requests = new_events(url)
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(partial(Sending, requests, measured, end), parts.hostname or "", parts.port or 80)
    await asyncio.sleep(warm_s)
    measured.counting = True
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    measured.counting = False
    took = time.perf_counter() - began
    measured.stopping = True
    await asyncio.wait(ends, timeout=10)
    return figures(measured.latencies, measured.failures, took)


def figures(latencies: list[float], failures: int, took_s: float) -> dict[str, Any]:
    """Events per second and percentiles of their latencies (seconds → ms)."""
    if len(latencies) < 2:
        return {"events": len(latencies), "failures": failures + 1, "events_per_s": 0.0}
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    found = {"events": len(latencies), "failures": failures, "events_per_s": len(latencies) / took_s}
    return found | {f"p{q}_ms": 1000 * cuts[q - 1] for q in (50, 99)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-s", type=float, default=1.0)
    arguments = vars(parser.parse_args())
    result = uvloop.run(drive(arguments.pop("url"), **arguments))
    sys.stdout.buffer.write(orjson.dumps(result) + b"\n")


if __name__ == "__main__":
    main()
