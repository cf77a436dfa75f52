"""A trainer without Celery: real PostgreSQL and Redis, a fake engine, a scripted learner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, select

from services.trainer.claims import Claims
from services.trainer.metrics import TrainerMetrics
from services.trainer.rounds import Rounds
from services.trainer.settings import TrainerSettings
from services.trainer.siblings import SiblingSource
from services.trainer.stopping import Stopping
from shared.contracts.experience import Experience
from shared.contracts.names import GROUP_TRAINER, STREAM_EXPERIENCE
from shared.db.engine import make_engine, unit_of_work
from shared.db.models import TrainedExperienceRow, TrainingRoundRow
from shared.streams.redis import RedisStreams
from tests.fakes.engine import FakeEngine
from tests.fakes.learner import ScriptedLearner


@dataclass
class Bench:
    """Everything around `Rounds`; `trainer()` makes a new one, as a restart would."""

    settings: TrainerSettings
    database: Engine
    streams: RedisStreams
    session: aiohttp.ClientSession
    engine: FakeEngine
    learner: ScriptedLearner = field(default_factory=ScriptedLearner)
    metrics: TrainerMetrics = field(default_factory=lambda: TrainerMetrics(CollectorRegistry()))
    stopping: Stopping = field(default_factory=lambda: Stopping(0.0))
    told: int = 0
    """How often the publisher was told."""
    now_s: float = 0.0
    """The trainer's monotonic clock."""

    def trainer(self, **changes: Any) -> Rounds:
        settings = self.settings.model_copy(update=changes)
        return Rounds(
            settings=settings,
            database=self.database,
            claims=Claims(self.streams, settings, self.metrics),
            siblings=SiblingSource(self.session, settings, self.metrics),
            learner=self.learner,
            metrics=self.metrics,
            tell_publisher=self._tell,
            stopping=self.stopping,
            monotonic=lambda: self.now_s,
        )

    def _tell(self) -> None:
        self.told += 1

    async def put(self, *experiences: Experience) -> None:
        await self.streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in experiences])

    def rounds(self) -> list[TrainingRoundRow]:
        with unit_of_work(self.database) as session:
            return list(session.scalars(select(TrainingRoundRow).order_by(TrainingRoundRow.committed_at)))

    def dispositions(self) -> dict[str, str]:
        with unit_of_work(self.database) as session:
            rows = session.scalars(select(TrainedExperienceRow))
            return {row.experience_id: row.disposition for row in rows}

    def trained_by_learner(self) -> list[str]:
        """Experience ids in every request that the learner got."""
        return [
            group.group_id
            for request in self.learner.requests
            for minibatch in request.minibatches
            for group in minibatch
        ]

    @property
    def root(self) -> Path:
        return Path(self.settings.checkpoint_root)

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(reply=["return x<|endoftext|>", "return total<|endoftext|>", "<|endoftext|>"]) as engine:
        yield engine


@pytest.fixture
async def bench(clean_db: str, clean_redis: str, engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Bench]:
    root = tmp_path / "checkpoints"
    root.mkdir()
    settings = TrainerSettings(
        database_url=clean_db,
        redis_url=clean_redis,
        engine_urls=engine.url,
        checkpoint_root=str(root),
        minibatch_size=4,
        minibatches_per_checkpoint=1,
        group_size=4,
        max_wait_s=10,
        max_staleness=2,
        max_failures=4,
    )
    database = make_engine(clean_db)
    streams = RedisStreams.from_url(clean_redis)
    await streams.ensure_group(STREAM_EXPERIENCE, GROUP_TRAINER)
    async with aiohttp.ClientSession() as session:
        yield Bench(settings, database, streams, session, engine)
    await streams.close()
    database.dispose()
