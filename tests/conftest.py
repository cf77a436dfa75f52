"""Real PostgreSQL (schema made by the migrations) and real Redis, one pair per test process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import structlog
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_port, running
from migrations.upgrade import upgrade


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """structlog's default paints them, which takes seconds for one deep stack."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder that the database's own system account can reach; pytest's folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="tabwise-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres_server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL that forgets to sync: it lives as long as the tests."""
    server = EmbeddedPostgres(server_folder / "postgres", free_port())
    with running(server, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"):
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: EmbeddedPostgres) -> str:
    """URL of a database with the newest schema."""
    postgres_server.create_database("tabwise")
    upgrade(postgres_server.url("tabwise"))
    return postgres_server.url("tabwise")


@pytest.fixture
def clean_db(postgres_url: str) -> str:
    """The same, all tables empty."""
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        ).fetchall()
        names = ", ".join(f'"{name}"' for (name,) in rows)
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE".encode())
    return postgres_url


@pytest.fixture(scope="session")
def redis_server(server_folder: Path) -> Iterator[EmbeddedRedis]:
    """A Redis with its append-only file, as in the stack."""
    server = EmbeddedRedis(server_folder / "redis", free_port())
    with running(server):
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedRedis) -> str:
    """URL of its database 0."""
    return redis_server.url()


@pytest.fixture
def clean_redis(redis_url: str) -> str:
    """The same, emptied."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


class OneEngine(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay in one test process; both files with a real vLLM go to the same, where it starts once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "vllm" if file.endswith(("test_engine_contract.py", "test_real_vllm.py")) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneEngine | None:
    """Instead of `--dist loadfile`, which `make test` asks for."""
    return OneEngine(config, log) if config.getoption("dist") == "loadfile" else None
