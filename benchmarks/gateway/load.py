"""A closed-loop load generator: each connection sends its next request when the last answer is whole.

`python -m benchmarks.gateway.load URL --connections 8 --seconds 5 [--stream]` prints one JSON object: requests per
second, latency percentiles in ms, and for streamed answers the percentiles of the gaps between arrivals of body bytes.
The same bytes go to every server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop

KEY = "bench-key"
MODEL = "tabwise"
PROMPT = (
    "<|fim_prefix|>" + "def total(items):\n    price, count = items[0]\n" * 30 + "    <|fim_suffix|>\n<|fim_middle|>"
)
"""About 1.4 kB, what Continue sends of a middle-sized file."""


@dataclass
class Measured:
    """What all connections saw. Seconds."""

    latencies: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    failures: int = 0
    counting: bool = False
    stopping: bool = False


class Asking(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, measured: Measured, done: asyncio.Future[None]) -> None:
        self._request = request
        self._measured = measured
        self._done = done
        self._transport: Any = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._sent = self._last = 0.0
        self._body = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._last = 0.0
        self._body = 0
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        now = time.perf_counter()
        self._body += len(body)
        if self._last and self._measured.counting:
            self._measured.gaps.append(now - self._last)
        self._last = now

    def on_message_complete(self) -> None:
        took, status = time.perf_counter() - self._sent, self._parser.get_status_code()
        if self._measured.counting:
            if status == 200 and self._body > 50:
                self._measured.latencies.append(took)
            else:
                self._measured.failures += 1
        if self._measured.stopping:
            self._transport.close()
        elif self._parser.should_keep_alive():
            self._begin()
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._measured.stopping:
            self._measured.failures += 1
        if not self._done.done():
            self._done.set_result(None)


def request_bytes(url: str, stream: bool) -> bytes:
    """The one request."""
    parts = urlsplit(url)
    fields = {"model": MODEL, "prompt": PROMPT, "max_tokens": 64, "temperature": 0.5, "stream": stream}
    body = orjson.dumps(fields)
    head = (
        f"POST {parts.path or '/v1/completions'} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def drive(
    url: str, *, connections: int, seconds: float, stream: bool, warm_s: float, limit: int | None = None
) -> dict[str, Any]:
    """Load `url` and return the figures. `limit`: stop after so many requests."""
    parts, measured, loop = urlsplit(url), Measured(), asyncio.get_running_loop()
    request = request_bytes(url, stream)
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(partial(Asking, request, measured, end), parts.hostname or "", parts.port or 80)
    await asyncio.sleep(warm_s)
    measured.counting = True
    began = time.perf_counter()
    while time.perf_counter() - began < seconds and (limit is None or len(measured.latencies) < limit):
        await asyncio.sleep(0.05)
        if all(end.done() for end in ends):
            break
    measured.counting = False
    took = time.perf_counter() - began
    measured.stopping = True
    await asyncio.wait(ends, timeout=10)
    return _figures(measured, took)


def _figures(measured: Measured, took: float) -> dict[str, Any]:
    latencies = measured.latencies
    if len(latencies) < 2:
        return {"requests": len(latencies), "failures": measured.failures + 1, "rps": 0.0}
    figures = {"requests": len(latencies), "failures": measured.failures, "rps": len(latencies) / took}
    figures |= {f"p{q}_ms": 1000 * _percentile(latencies, q) for q in (50, 90, 99)}
    if len(measured.gaps) > 1:
        figures |= {f"gap_p{q}_ms": 1000 * _percentile(measured.gaps, q) for q in (50, 99)}
    return figures


def _percentile(values: list[float], q: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[q - 1]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-s", type=float, default=0.5)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--stream", action="store_true")
    arguments = vars(parser.parse_args())
    figures = uvloop.run(drive(arguments.pop("url"), **arguments))
    sys.stdout.buffer.write(orjson.dumps(figures) + b"\n")


if __name__ == "__main__":
    main()
