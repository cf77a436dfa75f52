"""Locks that PostgreSQL holds for a process: gone with its session, however it dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from shared.kit.errors import TemporaryError


@contextmanager
def only_one(engine: Engine, lock: int) -> Iterator[bool]:
    """Whether no other process holds this advisory lock; held until the end of the block, or of the process.

    Raises `TemporaryError` while the database is away.
    """
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        mine = bool(connection.scalar(select(func.pg_try_advisory_lock(lock))))
    except DBAPIError as error:
        raise TemporaryError(f"database: {type(error.orig).__name__}") from error
    with connection:
        try:
            yield mine
        finally:
            if mine:
                _unlock(connection, lock)


def _unlock(connection: Connection, lock: int) -> None:
    try:
        connection.scalar(select(func.pg_advisory_unlock(lock)))
    except DBAPIError:
        connection.invalidate()  # the session is gone, and its lock with it
