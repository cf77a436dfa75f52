"""Settings of the gateway."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from shared.kit.settings import ServiceSettings


class GatewaySettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=8081, ge=1, le=65535)
    api_keys: str = ""
    """`secret` or `secret:project`, separated by commas; each may do everything."""
    keys_file: str = ""
    """Keys made with `make keys` or `python -m shared.keys`, digests only; read again when it changes."""
    engine_urls: str = "http://127.0.0.1:8000"
    """Base URLs of the engine's replicas, separated by commas."""
    served_model_name: str = "tabwise"
    """The engine's name of the model; clients may ask for any."""
    redis_url: str = "redis://127.0.0.1:6379/0"

    max_completion_tokens: int = Field(default=64, ge=1)
    """More are never sampled for one choice; also what a client gets that names no `max_tokens`."""
    temperature_override: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    """Sample at this temperature whatever the client says, but for an exact 0, which asks for the greedy completion.
    Continue says 0.01, from which nothing can be learnt."""
    fim_template: Literal["qwen"] = "qwen"
    """How a prompt with a `suffix` is written for the model."""
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)

    engine_connect_timeout_s: float = Field(default=2.0, gt=0)
    engine_first_token_timeout_s: float = Field(default=30.0, gt=0)
    """Includes waiting for a publish (under a second) and for the engine's queue."""
    engine_total_timeout_s: float = Field(default=120.0, gt=0)
    replica_cooldown_s: float = Field(default=2.0, gt=0)
    """A replica that failed is asked last for this long."""

    capture_queue_size: int = Field(default=4096, ge=1)
    """Generations that wait for Redis in memory; what comes on top is dropped and counted."""
    capture_batch_size: int = Field(default=128, ge=1)
    capture_retry_s: float = Field(default=120.0, ge=0)
    """How long a generation is kept while Redis is away; then it is dropped and counted."""
    capture_drain_s: float = Field(default=5.0, ge=0)
    """How long a stopping gateway tries to hand over what is left."""
    capture_stream_length: int = Field(default=100_000, ge=1)
    """About how many generations the stream keeps for a recorder that is away; the oldest go first."""
    shutdown_grace_s: int = Field(default=10, ge=0)
    """How long a stopping gateway lets running completions go on."""

    @field_validator("engine_urls")
    @classmethod
    def _urls(cls, value: str) -> str:
        urls = [url.strip() for url in value.split(",") if url.strip()]
        if not urls or any(not url.startswith(("http://", "https://")) for url in urls):
            raise ValueError("must be http:// or https:// URLs separated by commas")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        if not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be a URL such as redis://127.0.0.1:6379/0")
        return value

    @property
    def replicas(self) -> list[str]:
        """The engine's base URLs, without trailing slashes."""
        return [url.strip().rstrip("/") for url in self.engine_urls.split(",") if url.strip()]
