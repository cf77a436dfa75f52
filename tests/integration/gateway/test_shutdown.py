"""SIGTERM as an orchestrator sends it: nobody's completion is cut, nothing that was captured is lost, status 0."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from deploy.local.embedded import free_port
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import text_of
from tests.integration.gateway.test_main import recorded, start, wait_ready

BODY = {"model": "m", "prompt": "p", "stream": True}


@contextmanager
def a_gateway(
    engine: FakeEngine, redis_url: str, **settings: str
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A process that is ready, and a client that keeps connections."""
    port = free_port()
    process = start(
        api_keys="k", gateway_port=str(port), engine_urls=engine.url, redis_url=redis_url, max_completion_tokens="400",
        **settings,
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": "Bearer k"}) as client:
            wait_ready(client)
            yield process, client
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], within_s: float) -> None:
    """It exits with status 0, without a traceback."""
    began = time.monotonic()
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - began < within_s
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_a_running_stream_ends_whole_and_is_recorded(clean_redis: str) -> None:
    with FakeEngine(reply="x" * 60) as engine, a_gateway(engine, clean_redis) as (process, client):
        engine.faults.token_delay_s = 0.02
        with client.stream("POST", "/v1/completions", json=BODY) as response:
            lines = response.iter_lines()
            first = next(lines)
            process.send_signal(signal.SIGTERM)
            body = "\n".join([first, *lines]) + "\n"
        ended(process, 8)

    assert body.endswith("data: [DONE]\n\n")
    assert text_of(body) == "x" * 60
    assert recorded(clean_redis) == 1


def test_a_stream_without_end_is_cut_after_the_grace_and_still_recorded(clean_redis: str) -> None:
    with (
        FakeEngine(reply="x" * 400) as engine,
        a_gateway(engine, clean_redis, shutdown_grace_s="1") as (process, client),
    ):
        engine.faults.token_delay_s = 0.05
        with client.stream("POST", "/v1/completions", json=BODY) as response:
            next(response.iter_lines())
            process.send_signal(signal.SIGTERM)
            ended(process, 8)

    assert recorded(clean_redis) == 1
    assert engine.running == 0


def test_in_the_delay_it_is_not_ready_and_still_serves(clean_redis: str) -> None:
    with FakeEngine(reply="ok") as engine, a_gateway(engine, clean_redis, shutdown_delay_s="1.5") as (process, client):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        with httpx.Client(base_url=client.base_url, headers=client.headers) as newcomer:
            answer = newcomer.post("/v1/completions", json=BODY)
            assert (answer.status_code, text_of(answer.text)) == (200, "ok")
            assert answer.headers["connection"] == "close"
        ended(process, 6)
        try:
            client.get("/health")
        except httpx.TransportError:
            pass
        else:
            raise AssertionError("it must be gone")

    assert recorded(clean_redis) == 1


def test_a_second_signal_skips_the_delay(clean_redis: str) -> None:
    with FakeEngine() as engine, a_gateway(engine, clean_redis, shutdown_delay_s="60") as (process, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        ended(process, 6)


def test_idle_connections_do_not_hold_it(clean_redis: str) -> None:
    with FakeEngine(reply="ok") as engine, a_gateway(engine, clean_redis, shutdown_grace_s="20") as (process, client):
        assert client.post("/v1/completions", json=BODY).status_code == 200
        process.send_signal(signal.SIGINT)
        ended(process, 6)


def test_without_redis_it_stops_in_time_too(clean_redis: str) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with FakeEngine(reply="ok") as engine, a_gateway(engine, nowhere, capture_drain_s="1") as (process, client):
        assert client.post("/v1/completions", json=BODY).status_code == 200
        process.send_signal(signal.SIGTERM)
        ended(process, 8)
