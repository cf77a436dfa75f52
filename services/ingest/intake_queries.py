"""Events on their way into the ledger: any number of rows in one statement that is its own transaction.

The rows travel as one JSON text and PostgreSQL takes them apart, which costs this process less than binding each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import orjson
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncEngine

from services.ingest.protocols.common import FeedbackEvent
from shared.db.models import FeedbackEventRow


@dataclass(frozen=True, slots=True)
class EventToStore:
    """A parsed event and when it came."""

    event: FeedbackEvent
    received_at: datetime


class InsertEvents:
    """Stores events, each fact once. Raises SQLAlchemy's errors; nothing is stored then."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    async def __call__(self, events: Sequence[EventToStore]) -> set[str]:
        """One statement, committed by itself. Returns the dedupe keys of those that were not there yet.

        Ordered by dedupe key, so that two statements with the same facts wait for one another and cannot deadlock.
        """
        rows = [_row(item) for item in sorted(events, key=_dedupe_key)]
        batch = orjson.dumps(rows, default=_hexadecimal).decode()
        async with self._engine.connect() as connection:
            result = await connection.exec_driver_sql(_statement(tuple(rows[0])), (batch,))
            return set(result.scalars())


def _dedupe_key(item: EventToStore) -> str:
    return item.event.dedupe_key


def _row(item: EventToStore) -> dict[str, Any]:
    event = item.event
    return {
        "dedupe_key": event.dedupe_key,
        "source": event.source,
        "project_id": event.project_id,
        "key_id": event.key_id,
        "client_completion_id": event.client_completion_id,
        "kind": event.kind,
        "select_kind": event.select_kind,
        "named_generation_id": event.named_generation_id,
        "choice_index": event.choice_index,
        "accepted": event.accepted,
        "prompt_sha256": event.prompt_sha256,
        "rendered_sha256": event.rendered_sha256,
        "completion": event.completion,
        "filepath": event.filepath,
        "cache_hit": event.cache_hit,
        "display_ms": event.display_ms,
        "client_time": event.client_time,
        "received_at": item.received_at,
        "evidence": event.evidence,
        "next_attempt_at": item.received_at,
    }


def _hexadecimal(value: object) -> str:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    raise TypeError(type(value).__name__)


@cache
def _statement(names: tuple[str, ...]) -> str:
    """The types are the table's own; columns that are not named get their defaults."""
    columns = FeedbackEventRow.__table__.columns
    types = ", ".join(f"{name} {columns[name].type.compile(postgresql.dialect())}" for name in names)  # type: ignore[no-untyped-call]
    listed = ", ".join(names)
    return (
        f"INSERT INTO feedback_events ({listed}) SELECT {listed} FROM json_to_recordset(%s::json) AS new({types}) "
        "ON CONFLICT (dedupe_key) DO NOTHING RETURNING dedupe_key"
    )
