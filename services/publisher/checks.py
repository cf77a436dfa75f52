"""What can be told before the worker starts: each failure is one sentence that names the setting to change."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from celery import Celery
from kombu.exceptions import OperationalError
from sqlalchemy.exc import ArgumentError, DBAPIError

from services.publisher import repository
from services.publisher.settings import PublisherSettings
from shared.db.engine import make_engine, unit_of_work
from shared.kit.errors import SettingsError
from shared.storage import open_store

_MISSING_TABLE = "42P01"


def check(settings: PublisherSettings) -> None:
    """Raise `SettingsError` where the publisher cannot work. Engines and storage need not be up yet."""
    check_engines(settings)
    check_folder(settings.serving_root)
    open_store(settings.storage)
    check_port(settings.metrics_host, settings.publisher_metrics_port)
    check_database(settings.database_url)
    check_broker(settings.broker_url)


def check_engines(settings: PublisherSettings) -> None:
    """At least one replica, each an HTTP address."""
    if not settings.engines:
        raise SettingsError("TABWISE_ENGINE_URLS: name at least one engine, such as http://127.0.0.1:8000")
    for url in settings.engines:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"TABWISE_ENGINE_URLS: {url!r} is no HTTP address")


def check_folder(serving_root: str) -> None:
    """It must be there, or be makeable, and writable."""
    try:
        Path(serving_root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"TABWISE_SERVING_ROOT: cannot make {serving_root}: {error.strerror}") from None
    if not os.access(serving_root, os.W_OK | os.X_OK):
        raise SettingsError(f"TABWISE_SERVING_ROOT: {serving_root} is not writable")


def check_port(host: str, port: int) -> None:
    """The port must be free and the address ours."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"the metrics server cannot listen on {host}:{port} ({error.strerror}): "
                "change TABWISE_PUBLISHER_METRICS_PORT or TABWISE_METRICS_HOST"
            ) from None


def check_database(url: str) -> None:
    """It must answer and have the tables."""
    try:
        engine = make_engine(url)
    except (ArgumentError, ModuleNotFoundError):
        raise SettingsError("TABWISE_DATABASE_URL: expected postgresql+psycopg://user@host:port/name") from None
    try:
        with unit_of_work(engine) as session:
            repository.check_schema(session)
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


def _where(url: str) -> str:
    """Host and port; never the password."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}"
    except ValueError:
        return "malformed address"
