"""What can be told before a worker starts: each failure is a `SettingsError`, one sentence that names the setting."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session

from shared.db.engine import make_engine, unit_of_work
from shared.kit.errors import SettingsError

_MISSING_TABLE = "42P01"


def check_engines(engines: Sequence[str]) -> None:
    """At least one replica, each an HTTP address. They need not be up yet."""
    if not engines:
        raise SettingsError("TABWISE_ENGINE_URLS: name at least one engine, such as http://127.0.0.1:8000")
    for url in engines:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"TABWISE_ENGINE_URLS: {url!r} is no HTTP address")


def check_folder(setting: str, folder: str) -> None:
    """It must be there, or be makeable, and writable."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{setting}: cannot make {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{setting}: {folder} is not writable")


def check_metrics_port(setting: str, host: str, port: int) -> None:
    """The port must be free and the address ours."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"the metrics server cannot listen on {host}:{port} ({error.strerror}): "
                f"change {setting} or TABWISE_METRICS_HOST"
            ) from None


def check_database(url: str, look: Callable[[Session], None]) -> None:
    """It must answer and have the tables that `look` asks for."""
    try:
        engine = make_engine(url)
    except (ArgumentError, ModuleNotFoundError):
        raise SettingsError("TABWISE_DATABASE_URL: expected postgresql+psycopg://user@host:port/name") from None
    try:
        with unit_of_work(engine) as session:
            look(session)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _MISSING_TABLE:
            raise SettingsError("TABWISE_DATABASE_URL: the database has no tables; run python -m migrations") from None
        raise SettingsError(f"TABWISE_DATABASE_URL: the database does not answer ({_where(url)})") from None
    finally:
        engine.dispose()


def check_broker(url: str) -> None:
    """Whatever Celery speaks to."""
    app = Celery(broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"socket_connect_timeout": 3}
    try:
        with app.connection_for_write(connect_timeout=3) as connection:
            connection.ensure_connection(max_retries=1, timeout=3)
    except (OperationalError, OSError, ValueError, KeyError, ImportError):
        raise SettingsError(f"TABWISE_BROKER_URL: the broker does not answer ({_where(url)})") from None


def check_redis(url: str) -> None:
    """It must answer."""
    try:
        with Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3) as client:
            client.ping()
    except (RedisError, OSError, ValueError):
        raise SettingsError(f"TABWISE_REDIS_URL: Redis does not answer ({_where(url)})") from None


def _where(url: str) -> str:
    """Host and port; never the password."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}"
    except ValueError:
        return "malformed address"
