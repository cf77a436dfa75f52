"""Gateway and ingest as processes at log level DEBUG, on a PostgreSQL and a Redis of their own that can be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.chaos_ingest.victims import Victim
from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_ports
from migrations.upgrade import upgrade
from tests.factories import KEY_SECRET

SERVICES = ("gateway", "ingest")


@dataclass(frozen=True)
class Stage:
    """What runs, and where its logs are."""

    parts: dict[str, Victim]
    urls: dict[str, str]
    database_url: str
    redis_url: str
    logs: Path

    def written(self) -> str:
        """Every log, the servers' too: PostgreSQL quotes rows that it refuses, unless told not to."""
        return "".join(log.read_text() for log in self.logs.glob("*.log"))

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """One of the two servers is away for the length of the block; then everything works again."""
        self.parts[name].kill()
        try:
            yield
        finally:
            self.parts[name].start()
            self.parts[name].await_ready()


@contextmanager
def stage(folder: Path, engine_url: str, **settings: str) -> Iterator[Stage]:
    """Everything runs and is ready; ended at the end."""
    postgres_port, redis_port, *ports = free_ports(4)
    postgres, redis = EmbeddedPostgres(folder / "postgres", postgres_port), EmbeddedRedis(folder / "redis", redis_port)
    postgres.initialise()
    log = folder / "postgres-server.log"
    parts = {"postgres": Victim("postgres", postgres.command(), postgres.ready, log, user=postgres.system_user)}
    parts["redis"] = Victim("redis", redis.command(), redis.ready, folder / "redis-server.log")
    urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(SERVICES, ports, strict=True)}
    made = Stage(parts, urls, postgres.url("tabwise"), redis.url(), folder)
    environment = _environment(made, engine_url, dict(zip(SERVICES, ports, strict=True)), settings)
    try:
        for name in ("postgres", "redis"):
            parts[name].await_ready()
        postgres.create_database("tabwise")
        upgrade(made.database_url)
        for name in SERVICES:
            parts[name] = _service(name, urls[name], folder, environment)
        for name in SERVICES:
            parts[name].await_ready()
        yield made
    finally:
        for name in reversed(parts):
            parts[name].end()


def _service(name: str, url: str, folder: Path, environment: dict[str, str]) -> Victim:
    def ready() -> bool:
        try:
            return httpx.get(f"{url}/ready").status_code == 200
        except httpx.TransportError:
            return False

    return Victim(name, [sys.executable, "-m", f"services.{name}"], ready, folder / f"{name}.log", environment)


def _environment(made: Stage, engine_url: str, ports: dict[str, int], settings: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TABWISE_")}
    ours = {
        "log_level": "DEBUG",
        "api_keys": KEY_SECRET,
        "database_url": made.database_url,
        "redis_url": made.redis_url,
        "engine_urls": engine_url,
        "ingest_url": made.urls["ingest"],
        "gateway_port": str(ports["gateway"]),
        "ingest_port": str(ports["ingest"]),
        "late_accept_window_s": "0.2",
        "settle_grace_s": "0.2",
        "join_grace_s": "1",
        "ingest_commit_timeout_s": "2",
        "request_read_timeout_s": "1",
    }
    return clean | {f"TABWISE_{name.upper()}": value for name, value in (ours | settings).items()}
