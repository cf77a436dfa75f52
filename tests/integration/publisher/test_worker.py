"""The real thing as a process: `python -m services.publisher` with Celery, its clock and metrics; and its commands."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from deploy.local.embedded import free_port
from tests.integration.publisher.conftest import Bench

COMMAND = [sys.executable, "-m", "services.publisher"]
CELERY = [sys.executable, "-m", "celery", "-A", "services.publisher.celery_app", "worker", "--pool", "solo",
          "--queues", "publisher", "--without-gossip", "--without-mingle", "--without-heartbeat"]  # fmt: skip


@pytest.fixture
def environment(bench: Bench, clean_redis: str) -> dict[str, str]:
    told = {
        "DATABASE_URL": bench.settings.database_url,
        "BROKER_URL": clean_redis.rsplit("/", 1)[0] + "/1",
        "ENGINE_URLS": bench.engine.url,
        "CHECKPOINT_ROOT": bench.settings.checkpoint_root,
        "SERVING_ROOT": bench.settings.serving_root,
        "STORAGE_URL": bench.settings.storage_url,
        "PUBLISHER_METRICS_PORT": str(free_port()),
        "PUBLISHER_TICK_S": "0.3",
    }
    return os.environ | {f"TABWISE_{name}": value for name, value in told.items()}


@contextmanager
def worker(environment: dict[str, str], command: list[str] = COMMAND) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.1)


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    wide = environment | {"COLUMNS": "160"}
    return subprocess.run([*COMMAND, *arguments], env=wide, capture_output=True, text=True, timeout=60, check=False)


def test_publishes_rolls_back_follows_and_stops_cleanly(bench: Bench, environment: dict[str, str]) -> None:
    bench.commit(1)
    with worker(environment) as process:
        until(lambda: bench.statuses() == {1: "live"})
        bench.commit(2)
        until(lambda: bench.statuses() == {1: "retired", 2: "live"})
        back = run(environment, "rollback", "--to", "1")
        assert back.returncode == 0, back.stderr
        assert back.stdout.startswith("version 1 is live again after")
        assert bench.serves(1)
        shown = run(environment, "versions")
        assert "pinned to 1" in shown.stdout
        assert run(environment, "follow").returncode == 0
        until(lambda: bench.statuses() == {1: "retired", 2: "live"})
        with urlopen(f"http://127.0.0.1:{environment['TABWISE_PUBLISHER_METRICS_PORT']}/metrics", timeout=2) as answer:
            assert b"tabwise_publisher_live_version 2.0" in answer.read()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert '"event": "version live"' in log


def test_the_celery_command_starts_it_too(bench: Bench, environment: dict[str, str]) -> None:
    bench.commit(1)
    with worker(environment, CELERY) as process:
        until(lambda: bench.statuses() == {1: "live"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_rollback_that_cannot_be(bench: Bench, environment: dict[str, str]) -> None:
    missing = run(environment, "rollback", "--to", "7")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("publisher: there is no stored version 7")
    alone = run(environment, "rollback", "--to", "0")
    assert alone.returncode == 0, "the base model is what is served"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ENGINE_URLS", " ", "name at least one engine"),
        ("ENGINE_URLS", "localhost:8000", "is no HTTP address"),
        ("STORAGE_URL", "here", "expected file:///folder or s3://bucket/prefix"),
        ("DATABASE_URL", "postgresql+psycopg://tabwise@127.0.0.1:1/tabwise", "the database does not answer"),
        ("BROKER_URL", "redis://127.0.0.1:1/1", "the broker does not answer"),
        ("PUBLISHER_TICK_S", "soon", "valid number"),
        ("SERVING_ROOT", "/proc/nowhere", "cannot make"),
    ],
)
def test_a_wrong_setting_is_one_sentence(environment: dict[str, str], name: str, value: str, sentence: str) -> None:
    stopped = run(environment | {f"TABWISE_{name}": value})
    assert stopped.returncode == 2
    (line,) = stopped.stderr.strip().splitlines()
    assert line.startswith(f"publisher: TABWISE_{name}: ")
    assert sentence in line


def test_a_port_that_is_taken(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        stopped = run(environment | {"TABWISE_PUBLISHER_METRICS_PORT": str(taken.getsockname()[1])})
    assert stopped.returncode == 2
    assert "TABWISE_PUBLISHER_METRICS_PORT" in stopped.stderr


def test_help_names_the_commands(environment: dict[str, str]) -> None:
    shown = run(environment, "--help")
    assert shown.returncode == 0
    for command in ("versions", "rollback", "follow"):
        assert command in shown.stdout
