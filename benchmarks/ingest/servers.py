"""What is measured, each as one process on a core of its own: ingest, and the plain handler. And their PostgreSQL.

PostgreSQL is bound to no core, for all of them and for pgbench alike; it syncs every commit, on a real disk.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.ingest.event import KEY
from benchmarks.processes import OTHERS_CORE, on_core, serving
from deploy.local.embedded import EmbeddedPostgres, EmbeddedRedis, free_port, running
from migrations.upgrade import upgrade
from services.ingest.settings import IngestSettings

DATABASE = "tabwise"
WARM_S = 1.0
DURABLE = ("-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "max_connections=400")
"""And the defaults otherwise, as the stack has them."""


@contextmanager
def ledger(folder: Path) -> Iterator[EmbeddedPostgres]:
    """A new PostgreSQL with the newest schema below `folder`; its data is deleted afterwards."""
    server = EmbeddedPostgres(folder / "postgres", free_port())
    try:
        with running(server, *DURABLE):
            server.create_database(DATABASE)
            upgrade(server.url(DATABASE))
            yield server
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


def empty(server: EmbeddedPostgres, *tables: str) -> None:
    """No rows, and a checkpoint, so that each measurement begins alike."""
    with psycopg.connect(server.url(DATABASE, "postgresql"), autocommit=True) as connection:
        names = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, tables))
        connection.execute(psycopg.sql.SQL("TRUNCATE {} CASCADE").format(names))
        connection.execute("CHECKPOINT")


def count_rows(server: EmbeddedPostgres, table: str) -> int:
    """Rows of `table` now."""
    with psycopg.connect(server.url(DATABASE, "postgresql")) as connection:
        query = psycopg.sql.SQL("SELECT count(*) FROM {}").format(psycopg.sql.Identifier(table))
        found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0


@contextmanager
def ingest(server: EmbeddedPostgres, redis: EmbeddedRedis, folder: Path, *, loops: bool) -> Iterator[str]:
    """One worker of ours; without `loops` it takes in events and nothing else, as the others do."""
    port = free_port()
    settings = {
        "TABWISE_DATABASE_URL": server.url(DATABASE),
        "TABWISE_REDIS_URL": redis.url(),
        "TABWISE_API_KEYS": KEY,
        "TABWISE_INGEST_PORT": str(port),
    }
    switches = [name for name in IngestSettings.model_fields if name.startswith("run_")]
    settings |= {f"TABWISE_{name.upper()}": str(loops).lower() for name in switches}
    url, command = f"http://127.0.0.1:{port}", [sys.executable, "-m", "services.ingest"]
    with serving(command, f"{url}/ready", folder / "ingest.log", environment=settings):
        yield url


@contextmanager
def naive(server: EmbeddedPostgres, folder: Path) -> Iterator[str]:
    """The plain handler."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.ingest.naive", server.url(DATABASE), str(port)]
    url = f"http://127.0.0.1:{port}"
    with serving(command, f"{url}/ready", folder / "naive.log"):
        yield url


def load(url: str, connections: int, seconds: float) -> dict[str, Any]:
    """What the load generator saw, on the core that the server does not use."""
    command = [sys.executable, "-m", "benchmarks.ingest.load", url, "--warm-s", str(WARM_S)]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    done = subprocess.run(on_core(OTHERS_CORE, command), check=True, stdout=subprocess.PIPE)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
