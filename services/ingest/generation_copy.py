"""Generations into the ledger by COPY: thousands of rows cost one statement of the recorder and one commit.

COPY knows no conflicts, so the rows go into a temporary table of the connection first; from there into `generations`,
without those that are stored already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson
import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.reviving import Made
from shared.contracts.generation import Generation

CopyRow = tuple[Any, ...]
"""Values in the order of `COLUMNS`; arrays and JSON as PostgreSQL writes them."""

COLUMNS = (
    "generation_id", "request_id", "choice_index", "created_at", "key_id", "project_id", "protocol", "client_model",
    "replica", "prompt", "prompt_sha256", "prompt_token_ids", "text", "token_ids", "logprobs", "text_offsets",
    "finish_reason", "stop_reason", "sampling", "policy_version", "policy_spans", "client_gone", "first_token_s",
    "total_s", "untrainable",
)  # fmt: skip
_KEY_ID, _CREATED_AT = COLUMNS.index("key_id"), COLUMNS.index("created_at")
_LISTED = ", ".join(COLUMNS)
_PREPARE = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_generations (LIKE generations INCLUDING DEFAULTS) "
    "WITH (toast_tuple_target = 8160) ON COMMIT DELETE ROWS"
)
"""Rows that live for one transaction are not worth compressing."""
_COPY = f"COPY incoming_generations ({_LISTED}) FROM STDIN"
_STORE = f"INSERT INTO generations ({_LISTED}) SELECT {_LISTED} FROM incoming_generations ON CONFLICT DO NOTHING"


def prompt_digest(prompt: str) -> bytes:
    """What an event without an id of ours is joined by."""
    return hashlib.sha256(prompt.encode()).digest()


def copy_row(generation: Generation, prompt_sha256: bytes) -> CopyRow:
    """Column values of a generation. `prompt_sha256`: of the prompt as it was sent."""
    g = generation
    return (
        g.generation_id,
        g.request_id,
        g.choice_index,
        g.created_at,
        g.key_id,
        g.project_id,
        g.protocol,
        g.client_model,
        g.replica,
        g.prompt,
        prompt_sha256,
        _integers(g.prompt_token_ids),
        g.text,
        _integers(g.token_ids),
        f"{{{','.join(map(repr, g.logprobs))}}}",
        _integers(g.text_offsets),
        g.finish_reason,
        None if g.stop_reason is None else str(g.stop_reason),
        g.sampling.model_dump_json(),
        g.policy_version,
        f"[{','.join(span.model_dump_json() for span in g.policy_spans)}]",
        g.client_gone,
        g.first_token_s,
        g.total_s,
        g.untrainable,
    )


def made_of(row: CopyRow) -> Made:
    """Whose generation a row is, and of when."""
    return Made(row[_KEY_ID], row[_CREATED_AT])


def _integers(values: list[int]) -> str:
    try:
        listed = orjson.dumps(values).decode()
    except TypeError:  # beyond 64 bits: for PostgreSQL to refuse
        listed = str(values)
    return f"{{{listed[1:-1]}}}"


async def copy_generations(session: AsyncSession, rows: Iterable[CopyRow]) -> None:
    """Store generations; those that are there already stay as they are. Raises SQLAlchemy's errors."""
    pooled = await (await session.connection()).get_raw_connection()
    connection: Any = pooled.driver_connection
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(_PREPARE)
            async with cursor.copy(_COPY) as copy:
                for row in rows:
                    await copy.write_row(row)
            await cursor.execute(_STORE)
    except psycopg.Error as error:
        raise DBAPIError.instance("COPY", None, error, psycopg.Error, hide_parameters=True) from None
