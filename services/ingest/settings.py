"""Settings of ingest: environment variables `TABWISE_*`, read once in `__main__`."""

from __future__ import annotations

from socket import gethostname

from pydantic import Field, field_validator

from services.ingest.figures_settings import FiguresSettings
from services.ingest.privacy_settings import PrivacySettings
from services.ingest.reward_settings import RewardSettings
from services.ingest.settling_settings import SettlingSettings
from shared.fim import FAMILIES


class IngestSettings(RewardSettings, PrivacySettings, SettlingSettings, FiguresSettings):
    """Everything that an operator may change. Durations are seconds. The reward's are in `RewardSettings`."""

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"
    redis_url: str = "redis://127.0.0.1:6379/0"
    api_keys: str = Field(default="", repr=False)
    """`secret` or `secret:project`, separated by commas; each may do everything."""
    keys_file: str = ""
    """Keys made with `make keys` or `python -m shared.keys`, digests only; read again when it changes."""

    ingest_host: str = "127.0.0.1"
    ingest_port: int = Field(default=8082, ge=1, le=65535)
    ingest_max_body_bytes: int = Field(default=2_000_000, gt=0)
    request_read_timeout_s: float = Field(default=10.0, gt=0)
    """How long a client may take to send its request; then 408."""
    ingest_commit_timeout_s: float = Field(default=5.0, gt=0)
    """An event that is not committed by then is answered 503."""
    ingest_max_waiting: int = Field(default=2000, gt=0)
    """Events that may wait for a connection to the ledger; one more is answered 503 at once."""
    ingest_max_commit: int = Field(default=256, gt=0)
    """Events of concurrent requests that one commit may hold."""

    fim_template: str = "qwen"
    """How the gateway writes the prompt of a client that sends prefix and suffix: the same setting as the gateway's."""

    late_accept_window_s: float = Field(default=20.0, ge=0)
    """A reject becomes final this long after it: until then an accept of the same completion overrules it."""
    join_window_s: float = Field(default=600.0, gt=0)
    """How old a generation may be when an event about it arrives."""
    join_grace_s: float = Field(default=60.0, ge=0)
    """How long an event waits for its generation; longer while the stream is away or not drained (`join_window_s`)."""
    join_revive_s: float = Field(default=3600.0, ge=0)
    """An event that was given up is tried again if its generation arrives no later than this after it."""
    clock_skew_s: float = Field(default=2.0, ge=0)
    """How far the gateway's clock may be ahead of ours."""
    settle_grace_s: float = Field(default=30.0, ge=0)
    """How long a final reject waits for a later request that shows what the developer typed instead."""

    poll_interval_s: float = Field(default=0.2, gt=0)
    settle_poll_interval_s: float = Field(default=0.5, gt=0)
    ingest_batch_size: int = Field(default=200, gt=0)
    """Rows that one step of a loop takes."""
    recorder_batch_size: int = Field(default=500, gt=0)
    """Generations that the recorder commits at once, where so many wait."""
    recorder_name: str = Field(default_factory=lambda: f"ingest-{gethostname()}")
    """Consumer name in the group of the generations stream; the same after a restart, so that it finds its own."""
    recorder_idle_claim_s: float = Field(default=15.0, ge=0)
    """Generations that another recorder took and left are taken over after this long."""
    outbox_keep_s: float = Field(default=86_400.0, ge=0)
    """Sent outbox rows are deleted after this long."""

    run_recorder: bool = True
    run_joiner: bool = True
    run_resolver: bool = True
    run_relay: bool = True

    @field_validator("fim_template")
    @classmethod
    def _known_family(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"must be one of {', '.join(FAMILIES)}")
        return value
