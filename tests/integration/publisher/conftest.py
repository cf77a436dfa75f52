"""A publisher without Celery: real PostgreSQL, real files, one or two fake engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, select

from services.publisher.metrics import PublisherMetrics
from services.publisher.rollout import Rollout
from services.publisher.settings import PublisherSettings
from shared.contracts.checkpoint import Probe
from shared.contracts.names import CHECKPOINT_FOLDER
from shared.db.engine import make_engine, unit_of_work
from shared.db.models import CheckpointRow, DeploymentRow, TrainingRoundRow
from shared.storage import CheckpointStore, open_store
from tests.fakes import toy_model
from tests.fakes.engine import FakeEngine

PROBE_IDS = toy_model.encode("def total(items):\n    return sum(items)\n")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class Bench:
    """Everything around `Rollout`; `publisher()` makes a new one, as a restart would."""

    settings: PublisherSettings
    database: Engine
    engine: FakeEngine
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    now: datetime = NOON

    def __post_init__(self) -> None:
        self.metrics = PublisherMetrics(self.registry)
        self.store = CheckpointStore(open_store(self.settings.storage))
        self._rollout = self.publisher()

    def publisher(self, **changes: Any) -> Rollout:
        settings = self.settings.model_copy(update=changes)
        self._rollout = Rollout(
            settings=settings, database=self.database, store=self.store, metrics=self.metrics, clock=lambda: self.now
        )
        return self._rollout

    def tick(self, after_s: float = 2.0) -> str:
        self.now += timedelta(seconds=after_s)
        return self._rollout.reconcile()

    def commit(self, version: int, *, probe: list[float] | None = None, files: dict[str, bytes] | None = None) -> Path:
        """What the trainer leaves behind: a folder and a row."""
        folder = Path(self.settings.checkpoint_root) / CHECKPOINT_FOLDER.format(version=version)
        (folder / "deepspeed").mkdir(parents=True)
        (folder / "deepspeed" / "state.pt").write_bytes(b"optimiser")
        (folder / "config.json").write_text(json.dumps({"version": version}))
        (folder / "model.safetensors").write_bytes(f"weights {version}".encode())
        logprobs = probe or toy_model.prompt_logprobs(toy_model.weights_digest(folder), PROBE_IDS)
        made = Probe(version=version, token_ids=PROBE_IDS, logprobs=logprobs)
        (folder / "probe.json").write_text(made.model_dump_json())
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
        self.round(version, folder.name)
        return folder

    def round(self, version: int, checkpoint: str) -> None:
        with unit_of_work(self.database) as session:
            session.add(
                TrainingRoundRow(
                    round_id=f"round-{version}",
                    version=version,
                    parent_version=version - 1,
                    checkpoint=checkpoint,
                    started_at=self.now,
                    committed_at=self.now,
                    minibatches=1,
                    trained=1,
                    stats={},
                )
            )

    def statuses(self) -> dict[int, str]:
        with unit_of_work(self.database) as session:
            return {row.version: row.status for row in session.scalars(select(CheckpointRow))}

    def checkpoint(self, version: int) -> CheckpointRow:
        with unit_of_work(self.database) as session:
            row = session.get(CheckpointRow, version)
            assert row is not None
            return row

    def deployments(self) -> list[DeploymentRow]:
        with unit_of_work(self.database) as session:
            return list(session.scalars(select(DeploymentRow).order_by(DeploymentRow.deployment_id)))

    def serves(self, version: int, engine: FakeEngine | None = None) -> bool:
        """Whether the engine has these weights, says so, and is not held."""
        engine = engine or self.engine
        folder = Path(self.settings.serving_root) / CHECKPOINT_FOLDER.format(version=version)
        weights = toy_model.weights_digest(folder) if version else toy_model.BASE_WEIGHTS
        label = str(version) if version else "default"
        return (engine.weights, engine.weight_version, engine.paused) == (weights, label, False)

    def figure(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"tabwise_publisher_{name}", labels) or 0.0


@pytest.fixture
def bench(clean_db: str, tmp_path: Path) -> Iterator[Bench]:
    database = make_engine(clean_db)
    (tmp_path / "checkpoints").mkdir()
    with FakeEngine() as engine:
        settings = PublisherSettings(
            database_url=clean_db,
            engine_urls=engine.url,
            checkpoint_root=str(tmp_path / "checkpoints"),
            serving_root=str(tmp_path / "serving"),
            storage_url=(tmp_path / "storage").as_uri(),
            admin_timeout_s=2.0,
            load_timeout_s=0.5,
        )
        yield Bench(settings, database, engine)
    database.dispose()
