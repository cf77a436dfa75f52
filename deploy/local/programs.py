"""The parts of the stack: how each is started, stopped and asked whether it works."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from deploy.local.config import StackConfig

Check = Callable[[], str | None]
"""None: it works. Else why not yet."""


@dataclass(frozen=True)
class Program:
    """One part. Lower `priority` starts earlier and stops later."""

    name: str
    command: list[str]
    check: Check
    priority: int
    port_field: str
    """Setting of the port that it listens on."""
    stop_signal: str = "TERM"
    stop_wait_s: int = 15
    user: str | None = None


def servers(config: StackConfig) -> list[Program]:
    """What everything else stands on."""
    postgres, redis = config.postgres, config.redis
    return [
        Program(
            "postgres",
            postgres.command(),
            lambda: None if postgres.ready() else "does not answer queries",
            priority=10,
            port_field="postgres_port",
            stop_signal="INT",
            stop_wait_s=30,
            user=postgres.system_user,
        ),
        Program(
            "redis",
            redis.command(),
            lambda: None if redis.ready() else "does not answer",
            priority=10,
            port_field="redis_port",
        ),
    ]


def services(config: StackConfig) -> list[Program]:
    """Our own parts, in the order of their dependence."""
    return [
        _service("engine", config.engine_url + "/health", 20, "engine_port", stop_wait_s=20),
        _service("ingest", config.ingest_url + "/ready", 30, "ingest_port"),
        _service("gateway", config.gateway_url + "/ready", 30, "gateway_port"),
        _service("publisher", _metrics(config.publisher_metrics_port), 40, "publisher_metrics_port", stop_wait_s=30),
        _service("trainer", _metrics(config.trainer_metrics_port), 50, "trainer_metrics_port", stop_wait_s=30),
    ]


def all_programs(config: StackConfig) -> list[Program]:
    """Every part, in the order of starting."""
    return servers(config) + services(config)


def _service(name: str, url: str, priority: int, port_field: str, stop_wait_s: int = 15) -> Program:
    command = [sys.executable, "-m", f"services.{name}"]
    return Program(name, command, lambda: _http(url), priority, port_field, stop_wait_s=stop_wait_s)


def _metrics(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


def _http(url: str) -> str | None:
    try:
        answer = httpx.get(url, timeout=2, trust_env=False)
    except httpx.TransportError:
        return "no answer yet"
    if answer.is_success:
        return None
    reason = answer.json().get("reason") if "json" in answer.headers.get("content-type", "") else None
    return reason or f"answers {answer.status_code}"
