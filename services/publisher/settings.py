"""Settings of the publisher."""

from __future__ import annotations

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from shared.contracts.replicas import normal_url
from shared.kit.settings import ServiceSettings
from shared.storage import StorageConfig


def _or_aws(name: str) -> AliasChoices:
    """`TABWISE_S3_<NAME>`, else the `AWS_<NAME>` that other tools read."""
    return AliasChoices(f"TABWISE_S3_{name}", f"AWS_{name}")


class PublisherSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    model_config = SettingsConfigDict(populate_by_name=True)

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"
    broker_url: str = "redis://127.0.0.1:6379/1"
    """Celery's broker."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Where the gateways listen for which replica is about to be held; unused with a single replica."""
    engine_urls: str = "http://127.0.0.1:8000"
    """Replicas, separated by commas. A new version is tried on the first one first."""
    served_model_name: str = "tabwise"
    checkpoint_root: str = "var/checkpoints"
    """Where the learner commits `vNNNNNN/`; only read."""
    serving_root: str = "var/serving"
    """Verified versions, for the engines to load from."""
    engine_serving_root: str | None = None
    """The same folder as the engines see it, where it is mounted elsewhere there."""
    storage_url: str = "file:///var/lib/tabwise/storage"
    """`file:///folder` or `s3://bucket/prefix`."""
    s3_endpoint_url: str | None = Field(default=None, validation_alias=_or_aws("ENDPOINT_URL"))
    s3_access_key_id: str | None = Field(default=None, validation_alias=_or_aws("ACCESS_KEY_ID"))
    s3_secret_access_key: SecretStr | None = Field(default=None, validation_alias=_or_aws("SECRET_ACCESS_KEY"))
    s3_region: str | None = Field(default=None, validation_alias=_or_aws("REGION"))
    metrics_host: str = "127.0.0.1"
    publisher_metrics_port: int = Field(default=9102, ge=1, le=65535)

    publisher_tick_s: float = Field(default=2.0, gt=0)
    """How often it looks, besides being told by the trainer."""
    keep_versions: int = Field(default=5, ge=1)
    """Newest versions kept in `serving_root`; the storage keeps all."""
    probe_tolerance: float = Field(default=0.002, gt=0)
    """Largest difference of a probe logprob between learner and engine, in nats. Seen with float32 on both sides:
    0.000003. Choose more where dtypes differ or are bfloat16."""
    admin_timeout_s: float = Field(default=10.0, gt=0)
    """Longest wait for one of vLLM's admin routes, other than loading."""
    load_timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for the weights to be loaded."""
    load_attempts: int = Field(default=3, ge=1)
    """A new version is given up after so many loads that ended without an answer from the engine."""
    retry_after_s: float = Field(default=15.0, ge=0)
    """Pause after a failed load before the same version is tried on the same replica again."""

    @property
    def engines(self) -> list[str]:
        """Base URLs of the replicas."""
        return [normal_url(url) for url in self.engine_urls.split(",") if url.strip()]

    @property
    def longest_drain_s(self) -> float:
        """Longer than a replica can be held: pause, load, resume."""
        return self.load_timeout_s + 5 * self.admin_timeout_s

    @property
    def storage(self) -> StorageConfig:
        """Where checkpoints are kept."""
        return StorageConfig(
            url=self.storage_url,
            endpoint_url=self.s3_endpoint_url,
            access_key_id=self.s3_access_key_id,
            secret_access_key=self.s3_secret_access_key,
            region=self.s3_region,
        )
