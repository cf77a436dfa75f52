"""Slow and endless requests, on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator

import pytest
import uvicorn
from fastapi import FastAPI, Request

from shared.web.errors import install_error_handlers
from shared.web.reading import MAX_HEAD_BYTES, reading_within

LIMIT_S = 0.3


def make_app() -> FastAPI:
    app = FastAPI()
    install_error_handlers(app)

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.get("/slow")
    async def slow() -> str:
        await asyncio.sleep(3 * LIMIT_S)
        return "done"

    return app


@pytest.fixture
async def port() -> AsyncIterator[int]:
    config = uvicorn.Config(make_app(), http=reading_within(LIMIT_S), log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


async def talk(port: int, *pieces: bytes, every_s: float = 0.0) -> tuple[bytes, float]:
    """Send the pieces, then read until the server closes; what it said, and after how long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = time.monotonic()
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(every_s)
    try:
        said = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        said = b""
    seconds = time.monotonic() - began_s
    writer.close()
    return said, seconds


def code_of(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def post(length: int, body: bytes = b"", close: bool = False) -> bytes:
    lines = ["POST /length HTTP/1.1", "Host: x", f"Content-Length: {length}", *(["Connection: close"] if close else [])]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


async def test_a_request_in_one_piece_or_several_is_answered(port: int) -> None:
    request = post(10, b"x" * 10, close=True)
    for pieces in ([request], [request[:5], request[5:40], request[40:-3], request[-3:]]):
        said, _ = await talk(port, *pieces, every_s=0.01)
        assert said.startswith(b"HTTP/1.1 200")
        assert said.endswith(b"10")


async def test_who_says_nothing_is_hung_up_on(port: int) -> None:
    said, seconds = await talk(port)
    assert said == b""
    assert LIMIT_S * 0.9 < seconds < 2


async def test_a_head_that_does_not_end(port: int) -> None:
    said, seconds = await talk(port, b"POST /length HTTP/1.1\r\n", *[b"X: y\r\n"] * 5, every_s=0.05)
    assert code_of(said) == (408, "request_timeout")
    assert seconds < 2


async def test_a_body_that_trickles(port: int) -> None:
    said, seconds = await talk(port, post(1000), *[b"x"] * 5, every_s=0.05)
    assert code_of(said) == (408, "request_timeout")
    assert seconds < 2


async def test_a_later_request_on_the_same_connection_is_bounded_too(port: int) -> None:
    said, _ = await talk(port, post(3, b"abc"), post(1000, b"x"))
    first, _, rest = said.partition(b"HTTP/1.1 408")
    assert first.startswith(b"HTTP/1.1 200")
    assert b"request_timeout" in rest


async def test_an_endless_head_is_refused_before_it_fills_the_memory(port: int) -> None:
    for head in (b"GET /" + b"x" * 100, b"GET / HTTP/1.1\r\nX: " + b"y" * 100):
        said, _ = await talk(port, head, *[b"z" * 8192] * (MAX_HEAD_BYTES // 8192 + 1), every_s=0.01)
        assert code_of(said) == (431, "head_too_large")


async def test_an_answer_may_take_longer_than_a_request(port: int) -> None:
    said, seconds = await talk(port, b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert said.endswith(b'"done"')
    assert seconds > 2 * LIMIT_S


async def test_many_requests_on_one_connection(port: int) -> None:
    said, _ = await talk(port, *[post(3, b"abc")] * 20, post(3, b"abc", close=True), every_s=0.02)
    assert said.count(b"HTTP/1.1 200") == 21
