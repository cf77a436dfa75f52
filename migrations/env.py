"""Alembic's entry: one transaction per upgrade, under an advisory lock so that only one runs at a time."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool, text

from shared.db.models import Base

LOCK = 0x7AB


def run() -> None:
    """Apply the migrations over one connection."""
    url = context.config.attributes["database_url"]
    engine = create_engine(url, poolclass=pool.NullPool, connect_args={"connect_timeout": 5})
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.configure(connection=connection, target_metadata=Base.metadata)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()
