"""What the embedded stack is told: one settings object, from which every process's environment follows."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError

from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_ports
from shared.kit.errors import SettingsError
from shared.kit.settings import ServiceSettings

REPOSITORY = Path(__file__).resolve().parents[2]
DATABASE = "tabwise"

Port = Annotated[int, Field(ge=1, le=65535)]


class StackConfig(ServiceSettings):
    """Ports, folders and the key of one stack. Environment variable of a field: `TABWISE_` + its name in capitals.

    Any other `TABWISE_*` variable of the caller reaches the services unchanged.
    """

    data_dir: Path = Path("var")
    """Everything that the stack writes."""
    model_path: str = str(REPOSITORY / "models" / "tabwise-small")
    """Base model: a folder in Hugging Face format, or a repository name such as `Qwen/Qwen2.5-Coder-1.5B`."""
    api_keys: str = ""
    """`secret[:project],…`; empty: one key is made and kept in the data folder."""
    keys_file: str = ""
    """The keys of `make keys`; empty: in the data folder."""
    bind_host: str = "127.0.0.1"
    """Address of gateway and ingest. 0.0.0.0 lets the team's other machines in."""
    gateway_port: Port = 8081
    ingest_port: Port = 8082
    engine_port: Port = 8000
    postgres_port: Port = 15432
    redis_port: Port = 16379
    trainer_metrics_port: Port = 9101
    publisher_metrics_port: Port = 9102
    temperature_override: float = Field(default=0.5, ge=0, le=10)
    """Completions are sampled at this temperature. Continue says 0.01, from which nothing can be learnt."""
    storage_url: str = ""
    """Where checkpoints are kept: `file:///…` or `s3://bucket/prefix`; empty: in the data folder."""
    start_timeout_s: float = Field(default=240, gt=0)
    """How long a part may take from its start to answering."""
    extra_environment: dict[str, str] = Field(default_factory=dict)
    """Further variables for the services, over those of the caller."""

    @classmethod
    def load(cls, **values: object) -> Self:
        """From the environment; `values` go first. Raises `SettingsError` naming the variable."""
        try:
            return cls(**values)  # type: ignore[arg-type]
        except ValidationError as error:
            first = error.errors()[0]
            name = "_".join(str(part) for part in first["loc"]).upper()
            raise SettingsError(f"TABWISE_{name}: {first['msg']}") from None

    @classmethod
    def isolated(cls, data_dir: Path, **values: object) -> Self:
        """A stack beside any other: free ports, and a data folder and key of its own."""
        names = cls.ports_by_field()
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        return cls.load(**{"data_dir": data_dir, "api_keys": _new_key(), "keys_file": "", **ports, **values})

    @classmethod
    def ports_by_field(cls) -> list[str]:
        """Names of all port settings."""
        return [name for name in cls.model_fields if name.endswith("_port")]

    @property
    def root(self) -> Path:
        """The data folder as an absolute path."""
        return self.data_dir.expanduser().resolve()

    @property
    def logs(self) -> Path:
        """One log per part, and the process manager's own."""
        return self.root / "logs"

    @property
    def postgres(self) -> EmbeddedPostgres:
        """The database server."""
        return EmbeddedPostgres(self.root / "postgres", self.postgres_port)

    @property
    def redis(self) -> EmbeddedRedis:
        """The stream and task server."""
        return EmbeddedRedis(self.root / "redis", self.redis_port)

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.postgres.url(DATABASE)

    @property
    def gateway_url(self) -> str:
        """Where completions are asked for."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def ingest_url(self) -> str:
        """Where feedback is sent."""
        return f"http://127.0.0.1:{self.ingest_port}"

    @property
    def engine_url(self) -> str:
        """vLLM itself, this machine only."""
        return f"http://127.0.0.1:{self.engine_port}"

    @property
    def key(self) -> str:
        """The first API key: what an editor of this machine uses."""
        return self.keys().split(",")[0].partition(":")[0]

    def keys(self) -> str:
        """All API keys; where none is set, one is made once and kept in `data_dir/api_key`, readable by us alone."""
        if self.api_keys:
            return self.api_keys
        file = self.root / "api_key"
        if not file.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(f"{_new_key()}\n")
        return file.read_text().strip()

    def erase(self) -> None:
        """Remove everything that an earlier stack left in the data folder, the database included."""
        for folder in (self.postgres.folder, self.root):
            if folder.exists():
                shutil.rmtree(folder)

    def folders(self) -> dict[str, Path]:
        """What the services write, by the setting that names it."""
        names = {
            "CHECKPOINT_ROOT": "checkpoints",
            "SERVING_ROOT": "serving",
            "TENSORBOARD_DIR": "tensorboard",
            "RUN_DIR": "runs",
        }
        return {name: self.root / folder for name, folder in names.items()}

    def environment(self) -> dict[str, str]:
        """The whole environment of every process of the stack."""
        settings = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis.url(0),
            "BROKER_URL": self.redis.url(1),
            "API_KEYS": self.keys(),
            "KEYS_FILE": self.keys_file or str(self.root / "keys.json"),
            "MODEL_PATH": self.model_path,
            "ENGINE_URLS": self.engine_url,
            "INGEST_URL": self.ingest_url,
            "STORAGE_URL": self.storage_url or (self.root / "storage").as_uri(),
            "TEMPERATURE_OVERRIDE": str(self.temperature_override),
            "GATEWAY_HOST": self.bind_host,
            "INGEST_HOST": self.bind_host,
            **{name.upper(): str(getattr(self, name)) for name in self.ports_by_field()},
            **{name: str(folder) for name, folder in self.folders().items()},
        }
        ours = {f"TABWISE_{name}": value for name, value in settings.items()}
        return {**os.environ, **ours, "PYTHONPATH": str(REPOSITORY), **self.extra_environment}


def _new_key() -> str:
    return f"tabwise-{secrets.token_urlsafe(18)}"
