"""A completion server that always answers the same 12 tokens, as vLLM writes them: `python -m … PORT [--gap-ms 10]`.

What differs is only what vLLM would also do: `stream: true` is answered by events, and token ids, logprobs and the
weight version are there where `return_token_ids` asks for them. One process, uvloop, no framework: it must not be what
is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from typing import Any

import httptools
import orjson
import uvloop

TOKENS = [" return", " sum", "(", "price", " *", " count", " for", " price", ",", " count", " in", " items)"]
PROMPT_TOKENS = 400
_HEAD = {"id": "cmpl-static", "object": "text_completion", "created": 1_790_000_000, "model": "tabwise"}


def _event(index: int, detailed: bool) -> bytes:
    last = index == len(TOKENS) - 1
    choice: dict[str, Any] = {
        "index": 0,
        "text": TOKENS[index],
        "logprobs": None,
        "finish_reason": "length" if last else None,
        "stop_reason": None,
    }
    if detailed:
        offset = len("".join(TOKENS[:index]))
        choice["logprobs"] = {
            "text_offset": [offset],
            "token_logprobs": [-0.25],
            "tokens": [TOKENS[index]],
            "top_logprobs": [{TOKENS[index]: -0.25}],
        }
        choice["token_ids"] = [100 + index]
        choice["prompt_token_ids"] = list(range(PROMPT_TOKENS)) if index == 0 else None
    stamp = {"weight_version": "7"} if detailed else {}
    return b"data: " + orjson.dumps(_HEAD | {"choices": [choice]} | stamp) + b"\n\n"


def _whole() -> bytes:
    choice = {"index": 0, "text": "".join(TOKENS), "logprobs": None, "finish_reason": "length", "stop_reason": None}
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(TOKENS)}
    usage["total_tokens"] = sum(usage.values())
    return orjson.dumps(_HEAD | {"choices": [choice], "usage": usage})


def _chunked(part: bytes) -> bytes:
    return f"{len(part):x}\r\n".encode() + part + b"\r\n"


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_PLAIN = _chunked(b"".join(()))  # the end of a chunked body
EVENTS = {
    detailed: [_chunked(_event(index, detailed)) for index in range(len(TOKENS))]
    + [_chunked(b"data: [DONE]\n\n") + _PLAIN]
    for detailed in (False, True)
}
STREAM = {detailed: _STREAM_HEAD + b"".join(events) for detailed, events in EVENTS.items()}
_BODY = _whole()
WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
    + str(len(_BODY)).encode()
    + b"\r\n\r\n"
    + _BODY
)
HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":
            self._transport.write(HEALTHY)
        elif b'"stream":true' not in self._body and b'"stream": true' not in self._body:
            self._transport.write(WHOLE)
        elif self._gap_s:
            self._task = asyncio.get_running_loop().create_task(self._paced(b"return_token_ids" in self._body))
        else:
            self._transport.write(STREAM[b"return_token_ids" in self._body])

    async def _paced(self, detailed: bool) -> None:
        self._transport.write(_STREAM_HEAD)
        for event in EVENTS[detailed]:
            await asyncio.sleep(self._gap_s)
            self._transport.write(event)


async def serve(port: int, gap_s: float) -> None:
    """Until killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        server = await asyncio.get_running_loop().create_server(lambda: Answering(gap_s), sock=listener, backlog=1024)
        await server.serve_forever()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--gap-ms", type=float, default=0.0, help="between two tokens of a streamed answer")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.gap_ms / 1000))


if __name__ == "__main__":
    main()
