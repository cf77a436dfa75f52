"""One ingest without its loops, on real PostgreSQL and Redis: tests take the steps themselves, and move the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.app import create_app
from services.ingest.joiner import Joiner
from services.ingest.metrics import IngestMetrics
from services.ingest.recorder import Recorder
from services.ingest.relay import Relay
from services.ingest.resolver import Resolver
from services.ingest.settings import IngestSettings
from shared.contracts.experience import Experience
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.db.engine import async_sessions, make_async_engine
from shared.streams import RedisStreams
from tests.factories import KEY_SECRET, continue_event, rlinf_event, tabby_event

HEADERS = {"Authorization": f"Bearer {KEY_SECRET}"}


@dataclass
class Clock:
    """Real time plus what a test adds."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@dataclass
class Room:
    """Everything of one ingest."""

    settings: IngestSettings
    sessions: async_sessionmaker[AsyncSession]
    streams: RedisStreams
    metrics: IngestMetrics
    clock: Clock
    http: httpx.AsyncClient
    recorder: Recorder
    joiner: Joiner
    resolver: Resolver
    relay: Relay

    async def generated(self, *generations: Generation) -> None:
        """The gateway has emitted these, and the recorder has recorded them."""
        await self.emit(*generations)
        await self.recorder.step()

    async def emit(self, *generations: Generation) -> None:
        await self.streams.append(STREAM_GENERATIONS, [g.model_dump_json().encode() for g in generations])

    async def submit(self, generation: Generation | None = None, **changes: Any) -> str:
        """Send RLinf's event; returns the completion id."""
        body = rlinf_event(generation, **changes)
        answer = await self.http.post("/api/training/submit", json=body, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        return str(body["completionId"])

    async def send_continue(self, generation: Generation | None = None, **changes: Any) -> str:
        """Send stock Continue's event; returns the completion id."""
        body = continue_event(generation, **changes)
        answer = await self.http.post("/v1/events/continue", json=body, headers=HEADERS)
        assert answer.status_code == 204, answer.text
        return str(body["data"]["completionId"])

    async def send_tabby(
        self, generation: Generation | None, event: str, *, select_kind: str | None = None, **changes: Any
    ) -> None:
        """Send a Tabby plugin's event, as the gateway passes it on."""
        query = {} if select_kind is None else {"select_kind": select_kind}
        body = tabby_event(generation, event, **changes)
        answer = await self.http.post("/v1/events/tabby", json=body, params=query, headers=HEADERS)
        assert (answer.status_code, answer.content) == (200, b""), answer.text

    async def work(self) -> None:
        """All loops, until none of them has anything to do."""
        steps = (self.joiner.step, self.resolver.step_accepted, self.resolver.step_rejected, self.relay.step)
        while sum([await step() for step in steps]):
            pass

    async def experience(self) -> list[Experience]:
        """What the trainer would receive, in order."""
        await self.streams.ensure_group(STREAM_EXPERIENCE, "test")
        entries = await self.streams.read(STREAM_EXPERIENCE, "test", "test", count=1000)
        return [Experience.model_validate_json(entry.payload) for entry in entries]

    async def rows(self, query: str) -> list[Row[Any]]:
        async with self.sessions() as session:
            return list((await session.execute(text(query))).all())

    async def value(self, query: str) -> Any:
        return (await self.rows(query))[0][0]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def settings(clean_db: str, clean_redis: str) -> IngestSettings:
    return IngestSettings(
        database_url=clean_db,
        redis_url=clean_redis,
        api_keys=f"{KEY_SECRET},second-key,bound-key:team",
        recorder_name="recorder-1",
        recorder_idle_claim_s=0.05,
        ingest_max_body_bytes=100_000,
    )


@pytest.fixture
async def room(settings: IngestSettings) -> AsyncIterator[Room]:
    clock = Clock()
    engine = make_async_engine(settings.database_url)
    sessions = async_sessions(engine)
    streams = RedisStreams.from_url(settings.redis_url)
    app = create_app(settings, clock=clock)
    metrics: IngestMetrics = app.state.metrics
    transport = httpx.ASGITransport(app=app)  # runs no lifespan, so no loops
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as http:
        yield Room(
            settings,
            sessions,
            streams,
            metrics,
            clock,
            http,
            Recorder(settings, sessions, streams, metrics),
            Joiner(settings, sessions, streams, metrics, clock),
            Resolver(settings, sessions, metrics, clock),
            Relay(settings, sessions, streams, metrics, clock),
        )
    await streams.close()
    await engine.dispose()
    await app.state.engine.dispose()


def fresh_metrics() -> IngestMetrics:
    """Metrics of a second process."""
    return IngestMetrics(CollectorRegistry())
