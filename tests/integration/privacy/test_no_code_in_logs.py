"""Code never reaches a log line or a metric label: markers are planted wherever code, paths and secrets come in.

Gateway and ingest run at DEBUG through good, bad and failing requests: malformed bodies, an engine that is ill and
quotes what it was asked, PostgreSQL and Redis away, poison in the stream.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from aiohttp import web

from shared.contracts.names import STREAM_GENERATIONS
from tests.factories import KEY_SECRET, continue_event, fim_prompt, make_generation, rlinf_event, tabby_event
from tests.fakes.engine import FakeEngine, Faults
from tests.integration.privacy.stage import Stage, stage

MARKER = re.compile(r"planted\w*|7770777", re.IGNORECASE)
TOKENS = [7770777, 2**40]
"""Token ids are code too; the second one is more than the ledger can hold."""
AUTHORIZED = {"Authorization": f"Bearer {KEY_SECRET}"}
HEADERS = AUTHORIZED | {"User-Agent": "planted_agent", "X-Custom": "planted_header", "Referer": "planted_referer"}
REPLY = "planted_completion(1)\n"

pytestmark = pytest.mark.timeout(240)


class Quoting(FakeEngine):
    """Refuses prompts with `refuse_` in them, and quotes them, as vLLM's validation does."""

    def _refusal(self, body: dict[str, Any], tokens: list[int]) -> web.Response | None:
        if "refuse_" in str(body.get("prompt")):
            message = f"1 validation error: input: {body['prompt']}"
            return web.json_response({"error": {"message": message, "code": 400}}, status=400)
        return super()._refusal(body, tokens)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to PostgreSQL's own account."""
    with tempfile.TemporaryDirectory(prefix="tabwise-test-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_no_marker_is_ever_written(folder: Path) -> None:
    with Quoting(reply=REPLY) as engine, stage(folder, engine.url, engine_try_timeout_s="1") as on:
        good(on)
        bad(on)
        ill_engine(on, engine)
        poison(on)
        with on.without("postgres"):
            refused = [send_event(on, event) for event in events("away")]
            assert 503 in refused
            complete(on, "away_postgres")
            assert eventually(lambda: "loop waits for the other side" in on.written())
        with on.without("redis"):
            complete(on, "away_redis")
            assert eventually(lambda: "generations not recorded yet" in on.written())
        good(on)
        the_ledger_has_what_the_logs_have_not(on)
        for url in on.urls.values():
            assert found(httpx.get(f"{url}/metrics").text) == set()
        written = on.written()
    assert found(written) == set()
    assert KEY_SECRET not in written
    for expected in ("generation put aside", "event not joined", "engine failed", "ledger away"):
        assert expected in written


def found(text: str) -> set[str]:
    return set(MARKER.findall(text))


def eventually(condition: Callable[[], bool], timeout_s: float = 20) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def post(on: Stage, service: str, path: str, **request: Any) -> httpx.Response | None:
    """None: the connection was cut, which some of these requests deserve."""
    try:
        return httpx.post(on.urls[service] + path, timeout=20, **({"headers": HEADERS} | request))
    except httpx.TransportError:
        return None


def bodies(where: str) -> Sequence[tuple[str, dict[str, Any]]]:
    """One completion of every protocol."""
    prefix, suffix = f"planted_prefix_{where} = ", f"\nplanted_suffix_{where}"
    segments = {"prefix": prefix, "suffix": suffix, "filepath": f"planted_path_{where}.py", "git_url": "planted_git"}
    message = {"role": "user", "content": f"planted_chat_{where}"}
    return (
        ("/v1/completions", {"model": "planted_model", "prompt": fim_prompt(prefix, suffix, path="planted_path.py")}),
        ("/v1/completions", {"model": "m", "prompt": fim_prompt(prefix, suffix), "stream": True, "user": "planted_u"}),
        ("/v1/completions", {"language": "python", "segments": segments}),
        ("/v1/fim/completions", {"model": "m", "prompt": prefix, "suffix": suffix, "stop": ["planted_stop"]}),
        ("/infill", {"input_prefix": prefix, "input_suffix": suffix, "prompt": "planted_line", "n_predict": 8}),
        ("/v1/chat/completions", {"model": "m", "messages": [message]}),
    )


def complete(on: Stage, where: str) -> None:
    for path, body in bodies(where):
        post(on, "gateway", path, json=body)


def events(where: str) -> Sequence[tuple[str, dict[str, Any]]]:
    """One event of every format, about something that was never sampled."""
    unknown = make_generation(f"planted_shown_{where}", prompt=fim_prompt(f"planted_unknown_{where}"))
    own = {"completion_id": unknown.request_id, "accepted": False, "final_text": f"planted_final_{where}"}
    return (
        ("/v1/events/continue", continue_event(unknown, filepath=f"file:///planted_path_{where}.py")),
        ("/api/training/submit", rlinf_event(unknown, gitRepo="planted_git", userId="planted_user")),
        ("/v1/events/tabby", tabby_event(unknown, view_id=f"planted_view_{where}")),
        ("/v1/feedback", own | {"idempotency_key": f"planted_key_{where}"}),
    )


def send_event(on: Stage, event: tuple[str, dict[str, Any]]) -> int:
    answer = post(on, "ingest", event[0], json=event[1])
    return 0 if answer is None else answer.status_code


def good(on: Stage) -> None:
    where = f"good_{time.monotonic_ns()}"
    complete(on, where)
    answer = post(on, "gateway", *bodies(where)[0][:1], json=bodies(where)[0][1])
    assert answer is not None
    assert answer.json()["choices"][0]["text"] == REPLY
    shown = make_generation(REPLY, prompt=bodies(where)[0][1]["prompt"])
    assert send_event(on, ("/v1/events/continue", continue_event(shown, accepted=False))) == 204
    for event in events(where):
        send_event(on, event)
    tabby = tabby_event(shown) | {"completion_id": answer.json()["id"]}
    post(on, "gateway", "/v1/events?select_kind=planted_kind", json=tabby)


def bad(on: Stage) -> None:
    """Everything that a client can get wrong."""
    paths = {"gateway": [path for path, _ in bodies("")] + ["/v1/events"], "ingest": [path for path, _ in events("")]}
    for service, known in paths.items():
        for path in dict.fromkeys(known):
            for content in malformed():
                post(on, service, path, content=content)
            body: Any = {"planted_field": {"planted_nested": "planted_value"}, "prompt": ["planted_list"], "data": 5}
            post(on, service, path, json=body)
            post(on, service, f"{path}/planted_segment?planted_query=planted_value", json=body)
            post(on, service, path, json=body, headers={"Authorization": "Bearer planted_secret"})
            post(on, service, path, json=body, headers=AUTHORIZED | {"X-Project-ID": "planted project!"})
        raw(on, service)
    for event in events("wrong"):
        for change in ({"filepath": 7}, {"timestamp": "planted_time"}, {"completion": "planted\x00nul"}):
            path, body = event
            send_event(on, (path, body | change | ({"data": body["data"] | change} if "data" in body else {})))
    post(on, "gateway", "/v1/completions", json={"model": "m", "prompt": "planted_refuse_ me"})
    post(on, "gateway", "/v1/completions", json={"model": "m", "prompt": "planted_long " * 4000})
    post(on, "gateway", "/v1/completions", content=b"x" * 3_000_000 + b"planted_large")
    httpx.get(on.urls["gateway"] + "/v1/models/planted_name", headers=HEADERS)


def malformed() -> Sequence[bytes]:
    return (
        b'{"prompt": "planted_broken',
        b'["planted_list"]',
        b'"planted_string"',
        b"planted_word",
        b'{"prompt": "planted_\xff\xfe"}',
        json.dumps({"prompt": {"planted_key": 1}, "model": ["planted_model"], "max_tokens": "planted_number"}).encode(),
        b'{"prompt": "planted", "temperature": "planted_temperature", "stop": {"planted_stop": 1}, "n": "planted_n"}',
        b"[" * 5000 + b"planted_deep",
    )


def raw(on: Stage, service: str) -> None:
    """What is not HTTP, or only half of it."""
    host, _, port = on.urls[service].removeprefix("http://").partition(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: planted_host\r\nAuthorization: Bearer {KEY_SECRET}\r\n".encode()
    for sent in (
        b"planted_word planted_path\r\n\r\n",
        b"POST /planted_path\x00 HTTP/1.1\r\nplanted header: planted\r\n\r\n",
        head + b"Content-Length: planted_length\r\n\r\n",
        head + b'Content-Length: 500\r\n\r\n{"prompt": "planted_half',
        head + b"Transfer-Encoding: chunked\r\n\r\nplanted_size\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(sent)
            connection.settimeout(3)
            try:
                connection.recv(1000)
            except OSError:
                continue


def ill_engine(on: Stage, engine: FakeEngine) -> None:
    for faults in (
        Faults(status=500),
        Faults(garbage_before_headers=True),
        Faults(reset_before_headers=True),
        Faults(garbage_after=1),
        Faults(error_after=1),
        Faults(half_chunk_after=1),
        Faults(end_after=1),
        Faults(logprob=float("nan")),
        Faults(stamp=False),
    ):
        engine.faults = faults
        for path, body in bodies("ill")[:3]:
            post(on, "gateway", path, json=body)
    engine.faults = Faults()
    asyncio.run(hang_up(on))


async def hang_up(on: Stage) -> None:
    async with httpx.AsyncClient(headers=HEADERS) as client:
        for path, body in bodies("gone"):
            asking = asyncio.create_task(client.post(on.urls["gateway"] + path, json=body))
            await asyncio.sleep(0.005)
            asking.cancel()


def poison(on: Stage) -> None:
    refused = [
        make_generation("planted_nul\x00", prompt="planted_prompt"),
        make_generation("planted_number").model_copy(update={"token_ids": TOKENS}),
        make_generation("planted_number", untrainable="planted").model_copy(update={"token_ids": TOKENS}),
        make_generation("planted_long", request_id="planted_" + "".join(map(str, range(4000)))),
    ]
    wrong = {"prompt": ["planted_list"], "planted_field": "planted_value", "sampling": {"planted_key": "planted"}}
    with redis.Redis.from_url(on.redis_url) as client:
        for payload in (
            b"planted_word",
            *(one.model_dump_json().encode() for one in refused),
            json.dumps(wrong).encode(),
            b"\xffplanted",
        ):
            client.xadd(STREAM_GENERATIONS, {"payload": payload})
    assert eventually(lambda: on.written().count("generation put aside") >= 7)


def the_ledger_has_what_the_logs_have_not(on: Stage) -> None:
    """Otherwise nothing would have been tried."""

    def joined() -> bool:
        with psycopg.connect(on.database_url.replace("+psycopg", "")) as connection:
            generations = connection.execute("SELECT count(*) FROM generations WHERE text LIKE 'planted%'").fetchone()
            events = connection.execute("SELECT count(*) FROM feedback_events WHERE status = 'joined'").fetchone()
        return generations is not None and events is not None and generations[0] > 10 and events[0] >= 2

    assert eventually(joined)
    assert eventually(lambda: "event not joined" in on.written())
