"""A real gateway on a real port, and ways of looking at what it recorded."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_GENERATIONS
from shared.streams import MemoryStreams, Streams

KEY = "test-key"
CONTINUE_STOP = [
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
    "/src/",
    "#- coding: utf-8",
    "```",
]
CONTINUE_PROMPT = "<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n<|fim_middle|>"


def continues_request(**changes: Any) -> dict[str, Any]:
    """What stock Continue sends."""
    body = {
        "model": "qwen2.5-coder-team",
        "max_tokens": 4096,
        "temperature": 0.01,
        "stream": True,
        "stop": CONTINUE_STOP,
        "prompt": CONTINUE_PROMPT,
    }
    return body | changes


class Gateway:
    """A running gateway, its client and its stream."""

    def __init__(self, url: str, client: httpx.AsyncClient, streams: Streams) -> None:
        self.url = url
        self.client = client
        self.streams = streams

    async def complete(self, **changes: Any) -> httpx.Response:
        """One request that is read to its end."""
        return await self.client.post("/v1/completions", json=continues_request(**changes))

    async def generations(self, count: int, timeout_s: float = 5.0) -> list[Generation]:
        """Exactly `count` recorded generations, oldest first."""
        await eventually(lambda: self._length(count), timeout_s)
        await self.streams.ensure_group(STREAM_GENERATIONS, "test")
        entries = await self.streams.read(STREAM_GENERATIONS, "test", "test", count=1000)
        assert len(entries) == count
        return [Generation.model_validate_json(entry.payload) for entry in entries]

    async def _length(self, count: int) -> bool:
        return await self.streams.length(STREAM_GENERATIONS) >= count

    async def metric(self, name: str, **labels: str) -> float | None:
        """A sample of `/metrics`; None where there is none."""
        text = (await self.client.get("/metrics")).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"tabwise_gateway_{name}" and sample.labels == labels:
                    return float(sample.value)
        return None


async def eventually(condition: Callable[[], Any], timeout_s: float = 5.0) -> None:
    """Wait until `condition` (plain or async) holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            holds = condition()
            if await holds if asyncio.iscoroutine(holds) else holds:
                return
            await asyncio.sleep(0.01)


def chunks(body: str) -> list[dict[str, Any]]:
    """The JSON events of a streamed answer; fails on anything else but `[DONE]` at the end."""
    events = body.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    payloads = [event.removeprefix("data: ") for event in events]
    return [json.loads(payload) for payload in payloads if payload != "[DONE]"]


def text_of(body: str, index: int = 0) -> str:
    """One choice's text of a streamed answer."""
    found = [choice for chunk in chunks(body) for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["text"] for choice in found)


@asynccontextmanager
async def serving(*engines: str, streams: Streams | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway in front of `engines`, on a free port, in this event loop."""
    streams = streams if streams is not None else MemoryStreams()
    values: dict[str, Any] = {
        "api_keys": f"{KEY},bound:team-a",
        "engine_urls": ",".join(engines),
        "shutdown_grace_s": 1,
    } | settings
    app = create_app(GatewaySettings(**values), streams=streams)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await eventually(lambda: server.started)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            headers = {"Authorization": f"Bearer {KEY}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=20) as client:
                yield Gateway(url, client, streams)
        finally:
            server.should_exit = True
            await task
