"""How long the join's query takes as generations pile up: the same events at 50,000 and at 5 million generations.

The rows are narrow (short prompts, two tokens), because it is the index that matters: 200 keys over 30 days, each
prompt twice. Each query is for one event, five seconds after one of the newest 20,000 generations: events come soon.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from benchmarks.ingest.servers import DATABASE
from deploy.local.embedded import EmbeddedPostgres
from services.ingest.partitions import Part
from services.ingest.repository import Repository
from shared.contracts.ids import TIMED
from shared.db.engine import async_sessions, make_async_engine

EVENTS, WARM = 2000, 200
PASSES = 5
NEWEST = 20_000
DAYS = 31
WINDOW, SKEW = timedelta(seconds=600), timedelta(seconds=2)

_GENERATIONS = """
INSERT INTO generations (generation_id, request_id, choice_index, created_at, key_id, project_id, protocol,
  client_model, replica, prompt, prompt_sha256, prompt_token_ids, text, token_ids, logprobs, text_offsets,
  finish_reason, sampling,
  policy_version, policy_spans, client_gone, total_s)
SELECT id, id, 0, at, 'key-' || lpad((n %% 200)::text, 10, '0'),
  'default', 'openai', 'm', 'r', 'p' || n, sha256(((n / 400) * 200 + n %% 200)::text::bytea), '{1,2}', 'x', '{1,2}',
  '{-0.5,-0.5}', '{0,1}', 'stop', '{"temperature":0.5,"max_tokens":64}', 1, '[]', false, 0.2
FROM generate_series(1, %(total)s) AS n,
  LATERAL (SELECT now() - interval '30 days' * ((%(total)s - n)::float / %(total)s) AS at),
  LATERAL (SELECT %(timed)s || lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0')
    || lpad(to_hex(n), 20, '0') AS id)
"""
"""The n-th of key n mod 200; each key asks for each of its prompts twice in a row."""
_EVENTS = """
INSERT INTO feedback_events (dedupe_key, source, project_id, key_id, client_completion_id, accepted, prompt_sha256,
  completion, filepath, cache_hit, received_at, evidence, next_attempt_at)
SELECT generation_id, 'continue', project_id, key_id, generation_id, true, prompt_sha256, 'x', '', false,
  created_at + interval '5 seconds', '{}', created_at
FROM (SELECT * FROM generations ORDER BY created_at DESC LIMIT %(newest)s) ORDER BY random() LIMIT %(events)s
"""


_SIZE = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('generations')"


@dataclass(frozen=True)
class Joined:
    """One size of the table. Milliseconds; the cost is the planner's."""

    generations: int
    p50_ms: float
    p99_ms: float
    plan_cost: float
    plan: str
    bytes: int


def load(server: EmbeddedPostgres, total: int) -> None:
    """Exactly `total` generations, and events about some of them. Indexes are built afterwards: that is faster."""
    with psycopg.connect(server.url(DATABASE, "postgresql"), autocommit=True) as connection:
        connection.execute("TRUNCATE generations, feedback_events CASCADE")
        indexes = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'generations' AND indexname LIKE 'ix_%'"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(psycopg.sql.SQL("DROP INDEX {}").format(psycopg.sql.Identifier(name)))
        _make_days(connection)
        connection.execute(_GENERATIONS, {"total": total, "timed": TIMED})
        for _, definition in indexes:
            connection.execute(definition.replace(" ON ONLY ", " ON "))
        connection.execute(_EVENTS, {"newest": min(NEWEST, total), "events": EVENTS + WARM})
        connection.execute("VACUUM ANALYZE generations")
        connection.execute("VACUUM ANALYZE feedback_events")
        connection.execute("CHECKPOINT")


def _make_days(connection: psycopg.Connection[Any]) -> None:
    """The tables of the days that are over."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    there = {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()}
    for part in (Part(today - timedelta(days=days)) for days in range(1, DAYS + 1)):
        if part.table not in there:
            connection.execute(part.creation.encode())


async def measure(server: EmbeddedPostgres, total: int) -> Joined:
    """Latency of the join's query for one event; p99 is the median over passes."""
    engine = make_async_engine(server.url(DATABASE))
    try:
        async with async_sessions(engine)() as session:
            ids = await _event_ids(session)
            async with _statements(engine) as seen:
                await _seconds(session, ids[:WARM])
            cost, plan = await _plan(session, *seen[-1])
            passes = [await _seconds(session, ids[WARM:]) for _ in range(PASSES)]
            size = await session.connection()
            held = (await size.exec_driver_sql(_SIZE)).scalar_one()
    finally:
        await engine.dispose()
    cuts = [statistics.quantiles(taken, n=100, method="inclusive") for taken in passes]
    p50, p99 = (1000 * statistics.median(cut[q - 1] for cut in cuts) for q in (50, 99))
    return Joined(total, p50, p99, cost, plan, held)


async def _event_ids(session: AsyncSession) -> list[int]:
    connection = await session.connection()
    rows = await connection.exec_driver_sql("SELECT event_id FROM feedback_events ORDER BY md5(dedupe_key)")
    return list(rows.scalars())


async def _seconds(session: AsyncSession, event_ids: list[int]) -> list[float]:
    repository, taken = Repository(session), []
    for event_id in event_ids:
        began = time.perf_counter()
        found = await repository.candidates([event_id], WINDOW, SKEW)
        taken.append(time.perf_counter() - began)
        assert found[event_id], "every event is about a generation that is there"
    return taken


@asynccontextmanager
async def _statements(engine: AsyncEngine) -> AsyncIterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        seen.append((statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


async def _plan(session: AsyncSession, statement: str, parameters: Any) -> tuple[float, str]:
    connection = await session.connection()
    explained = await connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
    root = explained.scalar_one()[0]["Plan"]
    return float(root["Total Cost"]), ", ".join(sorted(_scans(root)))


def _scans(node: dict[str, Any]) -> set[str]:
    own = (
        {f"{node['Node Type']} {node.get('Index Name') or node['Relation Name']}"} if "Relation Name" in node else set()
    )
    return own.union(*(_scans(child) for child in node.get("Plans", [])))
