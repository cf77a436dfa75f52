"""`python -m services.ingest` as it really runs: a kill -9, clear words when it cannot start, and privacy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from deploy.local.embedded import free_port
from shared.contracts.experience import Experience
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from tests.factories import continue_event, fim_prompt, make_generation, rlinf_event
from tests.integration.ingest.conftest import HEADERS

COMMAND = [sys.executable, "-m", "services.ingest"]
MARKER = "PLANTEDMARKER"


def environment(database_url: str, redis_url: str, port: int, **changes: str) -> dict[str, str]:
    mine = {
        "TABWISE_DATABASE_URL": database_url,
        "TABWISE_REDIS_URL": redis_url,
        "TABWISE_API_KEYS": "test-token",
        "TABWISE_INGEST_HOST": "127.0.0.1",
        "TABWISE_INGEST_PORT": str(port),
        "TABWISE_LATE_ACCEPT_WINDOW_S": "0.2",
        "TABWISE_SETTLE_GRACE_S": "0.2",
        "TABWISE_JOIN_GRACE_S": "5",
    }
    return os.environ | mine | changes


@contextmanager
def ingest(env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running ingest that answers; killed at the end if it still runs."""
    with log.open("ab") as output:
        process = subprocess.Popen(COMMAND, env=env, stdout=output, stderr=output)
    try:
        _await(lambda: _answers(int(env["TABWISE_INGEST_PORT"])))
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


def _await(condition: Any, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def emit(client: redis.Redis, *generations: Generation) -> None:
    for generation in generations:
        client.xadd(STREAM_GENERATIONS, {"payload": generation.model_dump_json()})


def experience(client: redis.Redis) -> list[Experience]:
    rows: Any = client.xrange(STREAM_EXPERIENCE)
    return [Experience.model_validate_json(fields[b"payload"]) for _, fields in rows]


def test_the_whole_service_through_a_kill(clean_db: str, clean_redis: str, tmp_path: Path) -> None:
    port = free_port()
    env, log = environment(clean_db, clean_redis, port, TABWISE_LOG_LEVEL="DEBUG"), tmp_path / "ingest.log"
    url = f"http://127.0.0.1:{port}"
    generations = [make_generation(f"{MARKER}({n})", prompt=fim_prompt(f"{MARKER}{n} = ")) for n in range(20)]
    with redis.Redis.from_url(clean_redis) as client:
        with ingest(env, log) as process:
            for generation in generations[:10]:
                assert httpx.post(
                    f"{url}/v1/events/continue", json=continue_event(generation), headers=HEADERS
                ).is_success
            emit(client, *generations)
            process.send_signal(signal.SIGKILL)
        with ingest(env, log) as process:
            for generation in generations[10:]:
                body = rlinf_event(generation, accepted=False)
                assert httpx.post(f"{url}/api/training/submit", json=body, headers=HEADERS).is_success
            wrong = rlinf_event(generations[0], filepath=5, uniqueId=MARKER)
            assert MARKER not in httpx.post(f"{url}/api/training/submit", json=wrong, headers=HEADERS).text
            never = rlinf_event(make_generation(f"never {MARKER}"))
            assert httpx.post(f"{url}/api/training/submit", json=never, headers=HEADERS).is_success
            client.xadd(STREAM_GENERATIONS, {"payload": make_generation(f"{MARKER}\x00").model_dump_json()})
            _await(lambda: len(experience(client)) >= 20)
            _await(lambda: httpx.get(f"{url}/v1/stats", headers=HEADERS).json()["events"]["unmatched"] == 1)
            assert MARKER not in httpx.get(f"{url}/metrics").text
            assert MARKER not in httpx.get(f"{url}/v1/stats", headers=HEADERS).text
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        found = experience(client)
    assert {e.generation_id for e in found} == {generation.generation_id for generation in generations}
    assert len({e.experience_id for e in found}) == 20
    assert sorted(e.label for e in found[:]) == ["accepted"] * 10 + ["rejected"] * 10
    written = log.read_text()
    assert "event not joined" in written
    assert "generation put aside" in written
    assert MARKER not in written
    assert "Traceback" not in written


def refusal(env: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stderr.strip()


def test_a_taken_port(clean_db: str, clean_redis: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, words = refusal(environment(clean_db, clean_redis, taken.getsockname()[1]))
    assert status == 2
    assert "TABWISE_INGEST_PORT" in words
    assert len(words.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"TABWISE_DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:1/nothing"}, "TABWISE_DATABASE_URL"),
        ({"TABWISE_DATABASE_URL": "nonsense"}, "TABWISE_DATABASE_URL"),
        ({"TABWISE_REDIS_URL": "nonsense"}, "TABWISE_REDIS_URL"),
        ({"TABWISE_API_KEYS": ""}, "TABWISE_API_KEYS"),
        ({"TABWISE_INGEST_PORT": "many"}, "TABWISE_INGEST_PORT"),
    ],
)
def test_a_wrong_setting(clean_db: str, clean_redis: str, changes: dict[str, str], word: str) -> None:
    status, words = refusal(environment(clean_db, clean_redis, free_port(), **changes))
    assert status == 2
    assert word in words
    assert len(words.splitlines()) == 1


def test_a_database_without_tables(clean_db: str, clean_redis: str) -> None:
    empty = clean_db.rpartition("/")[0] + "/postgres"
    status, words = refusal(environment(empty, clean_redis, free_port()))
    assert status == 2
    assert "python -m migrations" in words
