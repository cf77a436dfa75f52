"""What is measured: a direct connection, nginx, the gateway (capture on and off) and LiteLLM's proxy.

All of them ask for a key, run one worker on a core of its own (where there are two), and go to the same upstream. Each
class says how it is started; `started` runs one and stops it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gateway.load import KEY, MODEL
from benchmarks.processes import serving
from deploy.local.embedded import free_port


@dataclass
class Started:
    """A server that answers at `url`."""

    url: str
    pid: int


@dataclass(frozen=True)
class Nginx:
    """A plain proxy with kept connections: about the least that a hop can cost."""

    upstream: str
    name: str = "nginx"

    def command(self, folder: Path, port: int) -> list[str]:
        host = self.upstream.removeprefix("http://")
        config = folder / "nginx.conf"
        config.write_text(
            f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream engine {{ server {host}; keepalive 128; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 100000000;
    location / {{
      if ($http_authorization != "Bearer {KEY}") {{ return 401; }}
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
    location = /ready {{ return 200 "ready"; }}
  }}
}}
"""
        )
        return [shutil.which("nginx") or "nginx", "-c", str(config), "-e", "stderr", "-p", str(folder)]

    def environment(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class Gateway:
    """This project's. `capture` off: nothing is recorded."""

    upstream: str
    redis_url: str
    capture: bool = True
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "ours" if self.capture else "ours_without_capture"

    def command(self, folder: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "services.gateway"]

    def environment(self) -> dict[str, str]:
        return {
            "TABWISE_ENGINE_URLS": self.upstream,
            "TABWISE_API_KEYS": KEY,
            "TABWISE_REDIS_URL": self.redis_url,
            "TABWISE_CAPTURE": str(self.capture).lower(),
            "TABWISE_KEY_REQUESTS_PER_MINUTE": "10000000",
            "TABWISE_KEY_CONCURRENCY": "1000",
            "TABWISE_MAX_IN_FLIGHT": "1000",
        } | self.settings


@dataclass(frozen=True)
class LiteLLM:
    """LiteLLM's proxy with a master key, as its documentation sets it up; `program` is its `litellm`."""

    upstream: str
    program: Path
    name: str = "litellm"

    def command(self, folder: Path, port: int) -> list[str]:
        config = folder / "litellm.yaml"
        config.write_text(
            f"""model_list:
  - model_name: {MODEL}
    litellm_params: {{model: text-completion-openai/{MODEL}, api_base: "{self.upstream}/v1", api_key: none}}
general_settings: {{master_key: {KEY}}}
litellm_settings: {{telemetry: false, set_verbose: false}}
"""
        )
        options = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
        return [str(self.program), "--config", str(config), *options]

    def environment(self) -> dict[str, str]:
        return {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}


Peer = Nginx | Gateway | LiteLLM


@contextmanager
def started(peer: Peer, folder: Path) -> Iterator[Started]:
    """Run `peer` for the length of a `with` block; its output goes to a file in `folder`."""
    folder = folder / peer.name
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    ready = url + ("/health/liveliness" if isinstance(peer, LiteLLM) else "/ready")
    environment = {**peer.environment(), "TABWISE_GATEWAY_PORT": str(port)}
    with serving(peer.command(folder, port), ready, folder / "output.log", environment=environment) as pid:
        yield Started(url, pid)
