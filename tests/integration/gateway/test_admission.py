"""Keys, scopes and bounds as a client of a real gateway meets them, and that hanging up holds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson

from shared.keys.key import Scope
from shared.keys.store import KeyFile
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import KEY, Gateway, continues_request, eventually, serving

EDITOR: frozenset[Scope] = frozenset({"complete", "feedback"})
PLACES = 12


def new_key(path: Path, scopes: frozenset[Scope] = EDITOR) -> dict[str, str]:
    """The header of a new key."""
    _, secret = KeyFile(path).add("somebody", None, scopes, datetime.now(UTC))
    return {"Authorization": f"Bearer {secret}"}


def assert_error(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


async def test_a_key_of_the_file_works_and_is_named_in_what_is_recorded(tmp_path: Path) -> None:
    headers = new_key(tmp_path / "keys.json")
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, api_keys="", keys_file=str(tmp_path / "keys.json")) as gateway:
            answer = await gateway.client.post("/v1/completions", json=continues_request(), headers=headers)
            assert answer.status_code == 200
            (generation,) = await gateway.generations(1)
            assert generation.key_id == KeyFile(tmp_path / "keys.json").read()[0].id


async def test_without_any_key_it_is_ready_and_says_how_to_make_one(tmp_path: Path) -> None:
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, api_keys="", keys_file=str(tmp_path / "keys.json")) as gateway:
            assert (await gateway.client.get("/ready")).status_code == 200
            answer = await gateway.complete()
            assert_error(answer, 401, "invalid_api_key")
            assert "make keys NEW=" in answer.json()["error"]["message"]


async def test_a_key_without_the_scope_is_refused(tmp_path: Path) -> None:
    headers = new_key(tmp_path / "keys.json", frozenset({"feedback", "admin"}))
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, keys_file=str(tmp_path / "keys.json")) as gateway:
            for answer in (
                await gateway.client.post("/v1/completions", json=continues_request(), headers=headers),
                await gateway.client.get("/v1/models", headers=headers),
            ):
                assert_error(answer, 403, "missing_scope")


async def test_a_revoked_key_is_out_within_two_seconds(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    headers = new_key(file.path)
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, keys_file=str(file.path)) as gateway:
            assert (await gateway.client.get("/v1/models", headers=headers)).status_code == 200
            file.revoke(file.read()[0].id, datetime.now(UTC))

            async def refused() -> bool:
                return (await gateway.client.get("/v1/models", headers=headers)).status_code == 401

            await eventually(refused, timeout_s=2)


async def test_too_many_a_minute() -> None:
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, key_requests_per_minute=12) as gateway:
            answers = [await gateway.complete() for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
            assert_error(answers[2], 429, "rate_limited")
            assert 1 <= int(answers[2].headers["Retry-After"]) <= 5
            assert await gateway.metric("refused_total", reason="key_rate") == 2
            assert await gateway.metric("requests_total", status="429", stream="false") == 2
            other = await gateway.client.get("/v1/models")
            assert other.status_code == 200


async def test_too_many_at_once_are_told_so_at_once() -> None:
    with FakeEngine(reply="x" * 50) as engine:
        engine.faults.token_delay_s = 0.1
        async with serving(engine.url, key_concurrency=3, max_in_flight=4) as gateway:
            running = [asyncio.create_task(gateway.complete()) for _ in range(3)]
            await eventually(lambda: engine.running == 3)
            refused = await asyncio.wait_for(gateway.complete(), 1)
            assert_error(refused, 429, "too_many_requests")
            assert refused.headers["Retry-After"] == "1"
            bound = {"Authorization": "Bearer bound"}
            fourth = asyncio.create_task(
                gateway.client.post("/v1/completions", json=continues_request(), headers=bound)
            )
            await eventually(lambda: engine.running == 4)
            fifth = await gateway.client.post("/v1/completions", json=continues_request(), headers=bound)
            assert_error(fifth, 429, "too_many_requests")
            engine.faults.token_delay_s = 0
            assert {(await task).status_code for task in (*running, fourth)} == {200}
            assert (await gateway.complete()).status_code == 200
            assert await gateway.metric("refused_total", reason="all_in_flight") == 1


async def test_a_refused_body_gives_its_place_back() -> None:
    with FakeEngine(reply="x") as engine:
        async with serving(engine.url, max_in_flight=1, max_body_bytes=10_000) as gateway:
            for _ in range(5):
                assert (await gateway.complete(max_tokens="many")).status_code == 422
                assert (await gateway.complete(echo=True)).status_code == 400
                assert (await gateway.complete(prompt="x" * 20_000)).status_code == 413
                engine.faults.status = 500
                assert (await gateway.complete()).status_code >= 500
                engine.faults.status = None
            await eventually(lambda: completes(gateway))


async def completes(gateway: Gateway) -> bool:
    return (await gateway.complete()).status_code == 200


async def test_after_a_thousand_hang_ups_every_place_is_free() -> None:
    rng = random.Random(7)
    with FakeEngine(reply="x" * 400) as engine:
        engine.faults.token_delay_s = 0.002
        async with serving(
            engine.url, max_in_flight=PLACES, key_requests_per_minute=0, max_completion_tokens=400
        ) as gateway:
            for _ in range(50):
                await asyncio.gather(*(hang_up(gateway, rng) for _ in range(20)))
            await eventually(lambda: engine.running == 0, timeout_s=20)
            assert (await gateway.metric("completions_in_flight")) == 0
            engine.faults.token_delay_s = 0.05
            running = [asyncio.create_task(gateway.complete(max_tokens=200)) for _ in range(PLACES)]
            await eventually(lambda: engine.running == PLACES)
            assert_error(await gateway.complete(), 429, "too_many_requests")
            engine.faults.token_delay_s = 0
            assert {(await task).status_code for task in running} == {200}


async def hang_up(gateway: Gateway, rng: random.Random) -> None:
    """One request that is given up somewhere: in its head, its body, before or amid its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(gateway.url).port)
    stream = rng.random() < 0.7
    body = orjson.dumps(continues_request(stream=stream, max_tokens=400))
    lines = ["POST /v1/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, "\r\n"])
    whole = head.encode() + body
    sent = rng.choice([len(head) // 2, len(head), len(whole) - len(body) // 2, len(whole), len(whole), len(whole)])
    writer.write(whole[:sent])
    if sent == len(whole) and stream:
        await asyncio.wait_for(reader.read(1), 5)
    else:
        await asyncio.sleep(rng.choice([0, 0.005, 0.02]))
    if rng.random() < 0.5:
        writer.transport.abort()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
