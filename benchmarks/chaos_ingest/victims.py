"""What is killed: real PostgreSQL and Redis as the embedded stack starts them, and ingest as three processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_ports
from migrations.upgrade import upgrade
from shared.kit.errors import TabwiseError

KEYS = ("chaos-key-1", "chaos-key-2", "chaos-key-3", "chaos-key-4")
READY_S = 60.0
SERVERS = ("redis", "postgres")
SERVICES = ("ingest", "recorder", "relay")
KINDS = ("ingest", "redis", "postgres", "recorder", "relay")
RUNS = {"ingest": {"JOINER", "RESOLVER"}, "recorder": {"RECORDER"}, "relay": {"RELAY"}}
"""Which loops each process runs; `ingest` also takes the events."""


@dataclass
class Victim:
    """One process that is killed and started again."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    log: Path
    environment: dict[str, str] | None = None
    user: str | None = None
    kills: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """In the background; `await_ready` tells when it works."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, env=self.environment, user=self.user, cwd="/" if self.user else None, stdout=output,
                stderr=output, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self) -> None:
        """`kill -9`, of PostgreSQL the postmaster alone: its children have to notice."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def await_ready(self) -> None:
        """Until it answers. Started again where it gave up, as a process manager would (its database was away)."""
        deadline = time.monotonic() + READY_S
        while not self.ready():
            if time.monotonic() > deadline:
                raise TabwiseError(f"{self.name} did not come back within {READY_S:.0f} s: see {self.log}")
            if self._process is None or self._process.poll() is not None:
                self.start()
            time.sleep(0.05)

    def end(self) -> None:
        """For good."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if self.name == "postgres" else signal.SIGTERM)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()


@dataclass(frozen=True)
class Scene:
    """All of them, and how to reach them."""

    folder: Path
    victims: dict[str, Victim]
    database_url: str
    redis_url: str
    ingest_url: str


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Everything runs and answers; ended at the end."""
    postgres_port, redis_port, *ports = free_ports(2 + len(SERVICES))
    postgres, redis = EmbeddedPostgres(folder / "postgres", postgres_port), EmbeddedRedis(folder / "redis", redis_port)
    postgres.initialise()
    victims = {
        "postgres": Victim(
            "postgres", postgres.command(), postgres.ready, folder / "postgres.log", user=postgres.system_user
        ),
        "redis": Victim("redis", redis.command(), redis.ready, folder / "redis.log"),
    }
    made = Scene(folder, victims, postgres.url("tabwise"), redis.url(), f"http://127.0.0.1:{ports[0]}")
    try:
        _start(victims, SERVERS)
        postgres.create_database("tabwise")
        upgrade(made.database_url)
        for name, port in zip(SERVICES, ports, strict=True):
            victims[name] = _service(name, port, made, folder)
        _start(victims, SERVICES)
        yield made
    finally:
        for name in reversed(victims):
            victims[name].end()


def _start(victims: dict[str, Victim], names: tuple[str, ...]) -> None:
    for name in names:
        victims[name].start()
    for name in names:
        victims[name].await_ready()


def _service(name: str, port: int, where: Scene, folder: Path) -> Victim:
    command = [sys.executable, "-m", "services.ingest"]
    url = f"http://127.0.0.1:{port}/ready"
    return Victim(name, command, lambda: _answers(url), folder / f"{name}.log", _environment(name, port, where))


def _environment(name: str, port: int, where: Scene) -> dict[str, str]:
    loops = {f"TABWISE_RUN_{loop}": str(loop in RUNS[name]) for loop in set().union(*RUNS.values())}
    return os.environ | loops | {
        "TABWISE_DATABASE_URL": where.database_url,
        "TABWISE_REDIS_URL": where.redis_url,
        "TABWISE_API_KEYS": ",".join(KEYS),
        "TABWISE_INGEST_HOST": "127.0.0.1",
        "TABWISE_INGEST_PORT": str(port),
        "TABWISE_RECORDER_NAME": name,
        "TABWISE_LATE_ACCEPT_WINDOW_S": "1",
        "TABWISE_SETTLE_GRACE_S": "1",
        "TABWISE_JOIN_GRACE_S": "600",
    }  # fmt: skip


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
