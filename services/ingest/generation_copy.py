"""Generations into the ledger by COPY: thousands of rows cost one statement of the recorder and one commit.

COPY knows no conflicts. Nearly always there are none, so the rows go straight into the table; where one is stored
already, because it was delivered twice, they go into a temporary table of the connection first, and from there into
`generations` without those that are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
_COPY = f"COPY generations ({_LISTED}) FROM STDIN"
_COPY_ASIDE = f"COPY incoming_generations ({_LISTED}) FROM STDIN"
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
        _array(g.prompt_token_ids),
        g.text,
        _array(g.token_ids),
        _array(g.logprobs),
        _array(g.text_offsets),
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


def _array(values: Sequence[float]) -> str:
    try:
        listed = orjson.dumps(values)
    except TypeError:  # integers beyond 64 bits: for PostgreSQL to refuse
        return f"{{{str(values)[1:-1]}}}"
    if b"n" in listed:  # null, for what is no number in JSON
        return f"{{{','.join(map(repr, values))}}}"
    return f"{{{listed[1:-1].decode()}}}"


async def copy_generations(session: AsyncSession, rows: Sequence[CopyRow]) -> None:
    """Store generations; those that are there already stay as they are. Raises SQLAlchemy's errors."""
    pooled = await (await session.connection()).get_raw_connection()
    connection: Any = pooled.driver_connection
    try:
        async with connection.cursor() as cursor:
            try:
                async with connection.transaction():
                    await _copy(cursor, _COPY, rows)
            except psycopg.errors.UniqueViolation:
                await cursor.execute(_PREPARE)
                await _copy(cursor, _COPY_ASIDE, rows)
                await cursor.execute(_STORE)
    except psycopg.Error as error:
        raise DBAPIError.instance("COPY", None, error, psycopg.Error, hide_parameters=True) from None


async def _copy(cursor: Any, statement: str, rows: Sequence[CopyRow]) -> None:
    async with cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)
