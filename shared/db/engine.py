"""Engines and sessions. Commit happens at the edge: one request, batch or task is one unit of work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.ext.asyncio import AsyncSession as AsyncSession
from sqlalchemy.orm import Session


def make_async_engine(url: str, *, pool_size: int = 10, connect_timeout_s: int = 5) -> AsyncEngine:
    """For the FastAPI services. `url` starts with `postgresql+psycopg://`."""
    return create_async_engine(
        url,
        pool_size=pool_size,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": connect_timeout_s},
    )


def make_engine(url: str, *, pool_size: int = 2, connect_timeout_s: int = 5) -> Engine:
    """For the Celery services and the migrations."""
    return create_engine(
        url,
        pool_size=pool_size,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": connect_timeout_s},
    )


def async_sessions(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    """A factory whose `begin()` is one unit of work: commits on leaving, rolls back on an exception."""
    return async_sessionmaker(engine, expire_on_commit=False)


@contextmanager
def unit_of_work(engine: Engine) -> Iterator[Session]:
    """One transaction: commits on leaving, rolls back on an exception."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session
