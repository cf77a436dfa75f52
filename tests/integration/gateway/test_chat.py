"""Chat goes through untouched; nobody learns from it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from shared.contracts.names import STREAM_GENERATIONS
from tests.integration.gateway.others import CHUNKS, other_server
from tests.integration.gateway.support import KEY, eventually, serving

CHAT = "/v1/chat/completions"
BODY = b'{"model": "gpt-5",  "messages": [{"role": "user", "content": "hi"}], "tools": [{"x": 1.50}], "stream": true}'


async def test_to_the_chat_server_byte_for_byte() -> None:
    async with (
        other_server(CHAT) as chat,
        serving("http://127.0.0.1:9", chat_url=f"{chat.url}/v1/", chat_api_key="chat-secret") as gateway,
    ):
        answer = await gateway.client.post(CHAT, content=BODY)
        recorded = await gateway.streams.length(STREAM_GENERATIONS)
        counted = await gateway.metric("passed_on_total", route="chat", status="200")

    assert (answer.status_code, answer.content) == (200, b"".join(CHUNKS))
    assert answer.headers["content-type"] == "text/event-stream"
    assert chat.bodies == [BODY]
    assert chat.headers[0]["authorization"] == "Bearer chat-secret"
    assert KEY not in str(chat.headers)
    assert (recorded, counted) == (0, 1)


async def test_to_the_engine_where_no_chat_server_is_set() -> None:
    async with other_server(CHAT) as engine, serving(engine.url) as gateway:
        answer = await gateway.client.post(CHAT, content=BODY)

    assert answer.content == b"".join(CHUNKS)
    assert json.loads(engine.bodies[0]) == json.loads(BODY) | {"model": "tabwise"}
    assert "authorization" not in engine.headers[0]


async def test_an_engine_that_is_away_is_passed_over() -> None:
    async with other_server(CHAT) as engine, serving("http://127.0.0.1:9", engine.url) as gateway:
        answers = [(await gateway.client.post(CHAT, content=BODY)).status_code for _ in range(4)]

    assert answers == [200] * 4


async def test_an_engine_that_is_ill_is_passed_over_and_the_last_ones_word_counts() -> None:
    async with (
        other_server(CHAT, status=503) as ill,
        other_server(CHAT) as well,
        serving(ill.url, well.url) as gateway,
        serving(ill.url) as alone,
    ):
        answers = [(await gateway.client.post(CHAT, content=BODY)).status_code for _ in range(4)]
        last = await alone.client.post(CHAT, content=BODY)

    assert answers == [200] * 4
    assert last.status_code == 503


@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_the_servers_own_errors_are_passed_on(status: int) -> None:
    error = b'{"error": {"message": "no"}}'
    async with (
        other_server(CHAT, status=status, content_type="application/json", answer=[error]) as chat,
        serving("http://127.0.0.1:9", chat_url=f"{chat.url}/v1") as gateway,
    ):
        answer = await gateway.client.post(CHAT, content=BODY)

    assert (answer.status_code, answer.content) == (status, error)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("settings", [{}, {"chat_url": "http://127.0.0.1:9/v1"}])
async def test_nobody_is_there(settings: dict[str, Any]) -> None:
    async with serving("http://127.0.0.1:9", **settings) as gateway:
        answer = await gateway.client.post(CHAT, content=BODY)
        counted = await gateway.metric("passed_on_total", route="chat", status="503")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "chat_unavailable")
    assert answer.headers["retry-after"]
    assert counted == 1


async def test_parts_come_as_they_are_sent_and_hanging_up_reaches_the_server() -> None:
    parts = [f"data: {number}\n\n".encode() for number in range(500)]
    async with other_server(CHAT, answer=parts, pause_s=0.02) as chat, serving(chat.url) as gateway:
        async with gateway.client.stream("POST", CHAT, content=BODY) as response:
            async for part in response.aiter_bytes():
                assert part == b"data: 0\n\n"
                break
        await eventually(lambda: chat.hung_up == 1)


async def test_hanging_up_before_the_first_byte() -> None:
    async with other_server(CHAT, answer=[b""] * 500, pause_s=0.05) as chat, serving(chat.url) as gateway:
        with pytest.raises(httpx.ReadTimeout):
            await gateway.client.post(CHAT, content=BODY, timeout=0.3)
        await eventually(lambda: chat.hung_up == 1)


async def test_a_stream_that_breaks_off_ends_with_an_error_event() -> None:
    async with other_server(CHAT, break_after=1) as chat, serving(chat.url) as gateway:
        answer = await gateway.client.post(CHAT, content=BODY)

    assert b'"code":"chat_failed"' in answer.content.split(b"data: ")[-1]


async def test_a_whole_answer_that_breaks_off_is_seen_to_be_cut() -> None:
    async with (
        other_server(CHAT, content_type="application/json", answer=[b'{"a"', b": 1}"], break_after=1) as chat,
        serving(chat.url) as gateway,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.client.post(CHAT, content=BODY)


async def test_a_server_that_falls_silent() -> None:
    async with (
        other_server(CHAT, pause_s=5) as chat,
        serving(chat.url, chat_gap_timeout_s=0.1) as gateway,
    ):
        answer = await gateway.client.post(CHAT, content=BODY)

    assert b"chat_failed" in answer.content


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages": []}', b"\xff"])
async def test_what_is_no_chat(body: bytes) -> None:
    async with other_server(CHAT) as chat, serving(chat.url) as gateway:
        answer = await gateway.client.post(CHAT, content=body)
        unknown = await gateway.client.post(CHAT, content=BODY, headers={"Authorization": "Bearer no"})

    assert (answer.status_code, unknown.status_code, chat.bodies) == (422, 401, [])
