"""A closed-loop load: each connection sends its next request when the last answer is whole.

What is sent and what counts as answered is the benchmark's; the same bytes go to every peer.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httptools

Good = Callable[[int, int], bool]
"""Whether an answer of this status and with so many bytes of body counts; else it is a failure."""
_TICK_S = 0.05


@dataclass
class Measured:
    """What all connections saw. Seconds."""

    good: Good
    latencies: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """Between two arrivals of body bytes of one answer."""
    failures: int = 0
    took_s: float = 0.0
    counting: bool = False
    stopping: bool = False


class Asking(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: Iterator[bytes], measured: Measured, done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._measured = measured
        self._done = done
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._last = 0.0
        self._body = 0
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        now = time.perf_counter()
        self._body += len(body)
        if self._last and self._measured.counting:
            self._measured.gaps.append(now - self._last)
        self._last = now

    def on_message_complete(self) -> None:
        took_s = time.perf_counter() - self._sent
        if self._measured.counting:
            if self._measured.good(self._parser.get_status_code(), self._body):
                self._measured.latencies.append(took_s)
            else:
                self._measured.failures += 1
        if self._measured.stopping:
            self._transport.close()
        elif self._parser.should_keep_alive():
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._measured.stopping:
            self._measured.failures += 1
        if not self._done.done():
            self._done.set_result(None)


async def drive(
    url: str,
    requests: Iterator[bytes],
    good: Good,
    *,
    connections: int,
    seconds: float,
    warm_s: float,
    limit: int | None = None,
) -> Measured:
    """Load `url` for `seconds` after `warm_s` that do not count, or until `limit` answers."""
    parts, measured, loop = urlsplit(url), Measured(good), asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(partial(Asking, requests, measured, end), parts.hostname or "", parts.port or 80)
    await asyncio.sleep(warm_s)
    measured.counting = True
    began = time.perf_counter()
    while (left_s := seconds - (time.perf_counter() - began)) > 0 and not all(end.done() for end in ends):
        if limit is not None and len(measured.latencies) >= limit:
            break
        await asyncio.sleep(min(_TICK_S, left_s))
    measured.counting = False
    measured.took_s = time.perf_counter() - began
    measured.stopping = True
    await asyncio.wait(ends, timeout=10)
    return measured


def percentiles_ms(values_s: Sequence[float], *wanted: int, prefix: str = "") -> dict[str, float]:
    """Of at least two values, by name: `p50_ms`, …"""
    cuts = statistics.quantiles(values_s, n=100, method="inclusive")
    return {f"{prefix}p{q}_ms": 1000 * cuts[q - 1] for q in wanted}
