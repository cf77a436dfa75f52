"""Settings of the gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode

from shared.contracts.replicas import normal_url
from shared.fim import FAMILIES
from shared.kit.settings import ServiceSettings


class Exploration(BaseModel):
    """How one project's shown completions are sampled, so that there is something to learn from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    """Instead of `temperature_override`."""
    full_support: bool = False
    """Ignore the client's `top_p`, `top_k` and `min_p`: no token is cut off, so every completion can be trained on."""


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
    exploration: Annotated[Mapping[str, Exploration], NoDecode] = Field(default_factory=dict)
    """Per project, as JSON: `{"team-a": {"temperature": 0.5, "full_support": true}}`."""
    fim_template: str = "qwen"
    """The model's family: how prompts are written for it where the client sends prefix and suffix."""
    model_aliases: str = ""
    """Model names that `/v1/models` lists beside the served one, separated by commas. Any name is served."""
    max_model_len: int = Field(default=2048, ge=16)
    """The engine's context, in tokens. Prompts that the gateway writes are cut to fit."""
    chars_per_token: float = Field(default=3.0, gt=0, le=20)
    """Estimate for that cut. Where it is too high, the engine refuses and the prompt is cut again."""
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)
    request_read_timeout_s: float = Field(default=10.0, gt=0)
    """How long a client may take to send its request; then 408."""

    key_requests_per_minute: int = Field(default=6_000, ge=0)
    """What one key may send on average, and a sixth of that at once; 0: as much as it likes. A developer at work
    sends 30 to 120 a minute."""
    key_concurrency: int = Field(default=128, ge=1)
    """Requests in flight of one key, which a whole team may share."""
    max_in_flight: int = Field(default=512, ge=1)
    """Requests in flight of all keys. More than the engines take at once would only wait there."""

    chat_url: str = ""
    """Base URL of an OpenAI-compatible server for chat, such as `https://host/v1`. Unset: the engine itself."""
    chat_api_key: str = Field(default="", repr=False)
    """What the chat server is sent as its bearer key."""
    chat_first_byte_timeout_s: float = Field(default=120.0, gt=0)
    chat_gap_timeout_s: float = Field(default=60.0, gt=0)
    """Longest silence in a chat answer."""
    ingest_url: str = "http://127.0.0.1:8082"
    """Where events go that clients send to the gateway."""
    ingest_timeout_s: float = Field(default=5.0, gt=0)

    engine_connect_timeout_s: float = Field(default=2.0, gt=0)
    """Longest wait for a replica's connection; also for its `/health`. Then the next one is asked."""
    engine_try_timeout_s: float = Field(default=3.0, gt=0)
    """A replica without a first token is given up after this while another can be asked. Longer than a publish holds
    a replica (under a second)."""
    engine_first_token_timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for the first token, all tries together; then 503 `engine_timeout`."""
    engine_gap_timeout_s: float = Field(default=10.0, gt=0)
    """Longest wait for the next token; then the answer ends with `engine_timeout`. Includes waiting for a publish."""
    engine_total_timeout_s: float = Field(default=120.0, gt=0)
    """Longest life of a completion; then the answer ends with `engine_timeout`."""
    replica_failures: int = Field(default=2, ge=1)
    """A replica is ejected (asked last) after so many failures in a row."""
    replica_ejection_s: float = Field(default=1.0, gt=0)
    """For how long at first; each further failure doubles it."""
    replica_longest_ejection_s: float = Field(default=30.0, gt=0)
    replica_affinity: bool = True
    """Whether requests of one project and file go to one replica, whose prefix cache then hits."""
    replica_affinity_slack: int = Field(default=4, ge=0)
    """... unless it has this many more requests in flight than the least loaded."""
    probe_interval_s: float = Field(default=2.0, gt=0)
    """How often each replica's `/health` is asked, where there are several."""

    capture: bool = True
    """False: completions are served and nothing is recorded, so nothing is learnt."""
    capture_queue_size: int = Field(default=4096, ge=1)
    """Generations that wait for Redis in memory; what comes on top is dropped and counted."""
    capture_batch_size: int = Field(default=128, ge=1)
    capture_retry_s: float = Field(default=120.0, ge=0)
    """How long a generation is kept while Redis is away; then it is dropped and counted."""
    capture_drain_s: float = Field(default=5.0, ge=0)
    """How long a stopping gateway tries to hand over what is left."""
    capture_stream_length: int = Field(default=100_000, ge=1)
    """About how many generations the stream keeps for a recorder that is away; the oldest go first."""
    shutdown_delay_s: float = Field(default=0.0, ge=0)
    """How long a stopping gateway, no longer ready, still takes new requests: the time in which whoever routes to it
    notices."""
    shutdown_grace_s: int = Field(default=10, ge=0)
    """How long a stopping gateway lets running completions go on."""

    @field_validator("exploration", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else {}
        except ValueError:
            raise ValueError('must be JSON such as {"project": {"temperature": 0.5, "full_support": true}}') from None

    @field_validator("fim_template")
    @classmethod
    def _family(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"must be one of {', '.join(FAMILIES)}")
        return value

    @field_validator("chat_url", "ingest_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must be an http:// or https:// URL")
        return value.rstrip("/")

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
        """The engine's base URLs as `normal_url` writes them."""
        return [normal_url(url) for url in self.engine_urls.split(",") if url.strip()]

    @property
    def model_names(self) -> list[str]:
        """What `/v1/models` lists, the served name first."""
        aliases = (alias.strip() for alias in self.model_aliases.split(","))
        return list(dict.fromkeys([self.served_model_name, *filter(None, aliases)]))

    def explores_fully(self, project_id: str) -> bool:
        """Whether no token may be cut off in this project."""
        explored = self.exploration.get(project_id)
        return explored is not None and explored.full_support

    @property
    def max_prompt_chars(self) -> int:
        """How long a prompt may be that leaves room for the longest completion."""
        room = max(self.max_model_len - self.max_completion_tokens, self.max_model_len // 2)
        return max(1, int(room * self.chars_per_token))
