"""Loads one server with one completion request, again and again.

`python -m benchmarks.gateway.load URL --connections 8 --seconds 5 [--stream]` prints one JSON object: requests per
second, latency percentiles in ms, and for streamed answers the percentiles of the gaps between arrivals of body bytes.
"""

from __future__ import annotations

import argparse
import sys
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvloop

from benchmarks.closed_loop import Measured, drive, percentiles_ms

KEY = "bench-key"
MODEL = "tabwise"
PROMPT = (
    "<|fim_prefix|>" + "def total(items):\n    price, count = items[0]\n" * 30 + "    <|fim_suffix|>\n<|fim_middle|>"
)
"""About 1.4 kB, what Continue sends of a middle-sized file."""


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


def is_completion(status: int, body_bytes: int) -> bool:
    """Not just any 200: there is something in it."""
    return status == 200 and body_bytes > 50


def figures(measured: Measured) -> dict[str, Any]:
    """What is printed."""
    answered = len(measured.latencies)
    if answered < 2:
        return {"requests": answered, "failures": measured.failures + 1, "rps": 0.0}
    found = {"requests": answered, "failures": measured.failures, "rps": answered / measured.took_s}
    found |= percentiles_ms(measured.latencies, 50, 90, 99)
    return found | (percentiles_ms(measured.gaps, 50, 99, prefix="gap_") if len(measured.gaps) > 1 else {})


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
    url, stream = arguments.pop("url"), arguments.pop("stream")
    measured = uvloop.run(drive(url, repeat(request_bytes(url, stream)), is_completion, **arguments))
    sys.stdout.buffer.write(orjson.dumps(figures(measured)) + b"\n")


if __name__ == "__main__":
    main()
