"""The migrations make exactly the tables that the models describe."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from migrations.__main__ import main
from migrations.upgrade import upgrade
from shared.db.models import Base


def test_no_difference_between_models_and_migrated_schema(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_upgrading_twice_changes_nothing(postgres_url: str) -> None:
    upgrade(postgres_url)


def test_an_unreachable_database_is_one_clear_sentence(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TABWISE_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert main() == 1
    assert "Check TABWISE_DATABASE_URL" in capsys.readouterr().err
