"""`python -m services.gateway` as an operator meets it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from deploy.local.embedded import free_port
from tests.fakes.engine import FakeEngine


def start(**settings: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TABWISE_")}
    environment = clean | {f"TABWISE_{name.upper()}": value for name, value in settings.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "services.gateway"], env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "TABWISE_API_KEYS"),
        ({"api_keys": "k", "gateway_port": "no"}, "TABWISE_GATEWAY_PORT"),
        ({"api_keys": "k", "engine_urls": "localhost:8000"}, "TABWISE_ENGINE_URLS"),
        ({"api_keys": "k", "redis_url": "localhost"}, "TABWISE_REDIS_URL"),
        ({"api_keys": "k", "gateway_host": "no.such.host.invalid"}, "TABWISE_GATEWAY_HOST"),
    ],
)
def test_a_bad_setting_is_one_sentence(settings: dict[str, str], named: str) -> None:
    process = start(**({"gateway_port": str(free_port())} | settings))
    _, said = process.communicate(timeout=30)

    assert process.returncode == 2
    assert named in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_taken_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start(api_keys="k", gateway_port=str(taken.getsockname()[1]))
        _, said = process.communicate(timeout=30)

    assert process.returncode == 2
    assert "TABWISE_GATEWAY_PORT" in said
    assert len(said.splitlines()) == 1


def test_it_serves_and_stops_cleanly(clean_redis: str) -> None:
    port = free_port()
    with FakeEngine(reply="x" * 400) as engine:
        engine.faults.token_delay_s = 0.05
        process = start(
            api_keys="k", gateway_port=str(port), engine_urls=engine.url, redis_url=clean_redis, shutdown_grace_s="1"
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": "Bearer k"}) as client:
                wait_ready(client)
                body = {"model": "m", "prompt": "p", "stream": True}
                with client.stream("POST", "/v1/completions", json=body) as response:
                    assert next(response.iter_lines()).startswith("data: ")
                    process.send_signal(signal.SIGTERM)
                    started = time.monotonic()
                    _, said = process.communicate(timeout=30)
        finally:
            process.kill()

    assert process.returncode == 0
    assert time.monotonic() - started < 8
    assert "Traceback" not in said
    assert recorded(clean_redis) == 1


def wait_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if client.get("/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the gateway did not become ready")


def recorded(url: str) -> int:
    import redis

    with redis.Redis.from_url(url) as client:
        return int(client.xlen("tabwise:generations"))
