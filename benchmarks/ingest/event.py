"""The one event that every server and pgbench store: an accept as stock Continue sends it, about 4.5 kB of JSON.

Only the completion id differs from request to request, always equally long, so each is a new event of the same size.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

import orjson

from shared import fim

KEY = "bench-key"
ROUTE = "/v1/events/continue"
ID_CHARS = 36
PREFIX = "def total(items):\n    price, count = items[0]\n" * 30 + "    "
SUFFIX = "\n\n\ndef average(items):\n    return total(items) / len(items)\n"
COMPLETION = "return sum(price * count for price, count in items)"
FILEPATH = "file:///project/src/shop/orders/totals.py"
TIMESTAMP = "2026-07-14T09:30:12.345Z"


def body(completion_id: str) -> dict[str, Any]:
    """The event as the client sends it."""
    data = {
        "accepted": True,
        "prefix": PREFIX,
        "suffix": SUFFIX,
        "prompt": fim.render("qwen", PREFIX, SUFFIX),
        "completion": COMPLETION,
        "completionId": completion_id,
        "uniqueId": "8a0e2b6c-7a64-4b4e-9f53-0d9d3f1f5b7a",
        "modelName": "qwen2.5-coder-team",
        "modelProvider": "openai",
        "cacheHit": False,
        "filepath": FILEPATH,
        "time": 412,
        "timestamp": TIMESTAMP,
        "eventName": "autocomplete",
        "schema": "0.2.0",
        "userId": "b0f5a7de-8f77-4f0c-9d2e-6a1c6a1f8e55",
        "userAgent": "Visual Studio Code/1.104.0 (Continue/1.2.1)",
        "selectedProfileId": "local",
        "maxPromptTokens": 1024,
        "debounceDelay": 350,
        "multilineCompletions": "auto",
    }
    return {"name": "autocomplete", "schema": "0.2.0", "level": "all", "profileId": "local", "data": data}


def request_around_id(url: str) -> tuple[bytes, bytes]:
    """The whole HTTP request before and after the completion id."""
    placeholder = "I" * ID_CHARS
    content = orjson.dumps(body(placeholder))
    head = (
        f"POST {ROUTE} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    before, _, after = (head.encode() + content).partition(placeholder.encode())
    return before, after


def row() -> dict[str, Any]:
    """The columns that ingest stores of it, but the dedupe key, the completion id and the times."""
    data = body("")["data"]
    evidence = ("uniqueId", "modelName", "modelProvider", "userId", "userAgent", "selectedProfileId", "profileId",
                "schema", "eventName", "level", "maxPromptTokens", "debounceDelay", "multilineCompletions")  # fmt: skip
    digest = hashlib.sha256(data["prompt"].encode()).digest()
    return {
        "source": "continue",
        "kind": "verdict",
        "project_id": "default",
        "key_id": f"key-{hashlib.sha256(KEY.encode()).hexdigest()[:10]}",
        "choice_index": 0,
        "accepted": True,
        "prompt_sha256": digest,
        "rendered_sha256": digest,
        "completion": COMPLETION,
        "filepath": FILEPATH,
        "cache_hit": False,
        "display_ms": 412.0,
        "evidence": {name: (body("") | data)[name] for name in evidence},
    }
