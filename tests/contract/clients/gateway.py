"""Services as processes; above all the gateway, in front of an engine, and what it recorded in Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import redis

from deploy.local.embedded import free_port
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_GENERATIONS

KEY = "client-key"


@dataclass
class Gateway:
    """One that runs. `api` is what an editor is given as its base URL."""

    url: str
    redis: redis.Redis

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def generations(self, count: int) -> list[Generation]:
        """Exactly `count` of them, in the order in which they were recorded."""
        eventually(lambda: self.redis.xlen(STREAM_GENERATIONS) >= count)
        entries: Any = self.redis.xrange(STREAM_GENERATIONS)
        assert len(entries) == count
        return [Generation.model_validate_json(fields[b"payload"]) for _, fields in entries]

    def generation(self) -> Generation:
        """The only one."""
        (generation,) = self.generations(1)
        return generation

    def forget(self) -> None:
        """What was recorded until now."""
        self.redis.delete(STREAM_GENERATIONS)


def eventually(condition: Callable[[], Any], limit_s: float = 10.0) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s} s"
        time.sleep(0.01)


@contextmanager
def gateway_process(engine_url: str, redis_url: str, log: Path, **settings: str) -> Iterator[Gateway]:
    """`python -m services.gateway`; `settings` are `TABWISE_` variables without their prefix."""
    port = free_port()
    told = {"ENGINE_URLS": engine_url, "REDIS_URL": redis_url, "GATEWAY_PORT": str(port), "SHUTDOWN_GRACE_S": "1"}
    with (
        service("services.gateway", f"http://127.0.0.1:{port}", log, told | settings) as url,
        redis.Redis.from_url(redis_url) as client,
    ):
        yield Gateway(url, client)


@contextmanager
def service(module: str, url: str, log: Path, settings: dict[str, str]) -> Iterator[str]:
    """`python -m` this module for the length of the block; yields its `url` once it is ready there."""
    environment = os.environ | {f"TABWISE_{name}": value for name, value in ({"API_KEYS": KEY} | settings).items()}
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=output, stderr=output)
    try:
        _await_ready(url, process, log)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def _await_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx.get(f"{url}/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    eventually(ready, 60)
