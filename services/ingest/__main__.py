"""`python -m services.ingest`: serve until SIGTERM, then 0. Exit status 2: a setting must be changed."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys

import structlog
import uvicorn
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError, ProgrammingError, SQLAlchemyError

from services.ingest.app import create_app
from services.ingest.repository import Repository
from services.ingest.settings import IngestSettings
from shared.db.engine import async_sessions, make_async_engine
from shared.kit.collector import spare_collector
from shared.kit.errors import SettingsError, TemporaryError
from shared.kit.logging import configure_logging
from shared.streams import RedisStreams
from shared.web.reading import reading_within

log = structlog.get_logger()


def main() -> int:
    """Check, start, serve. Returns the exit status."""
    try:
        settings = IngestSettings.load()
        configure_logging("ingest", settings.log_level, settings.log_format)
        asyncio.run(_check(settings))
        app = create_app(settings)
        spare_collector()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again once it has shut down
        with _listen(settings) as listener:
            log.info("ingest listens", host=settings.ingest_host, port=settings.ingest_port)
            config = uvicorn.Config(
                app,
                http=reading_within(settings.request_read_timeout_s),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            )
            uvicorn.Server(config).run(sockets=[listener])
    except SettingsError as error:
        print(f"ingest: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


def _listen(settings: IngestSettings) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.ingest_host, settings.ingest_port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                f"port {settings.ingest_port} is taken: set TABWISE_INGEST_PORT to a free one"
            ) from None
        raise SettingsError(
            f"cannot listen on {settings.ingest_host}:{settings.ingest_port} ({error.strerror}): "
            "set TABWISE_INGEST_HOST and TABWISE_INGEST_PORT"
        ) from None
    return listener


async def _check(settings: IngestSettings) -> None:
    """The database must be there; Redis may come later, because taking in feedback does not need it."""
    try:
        engine = make_async_engine(settings.database_url)
    except (ArgumentError, InvalidRequestError, ImportError) as error:
        raise SettingsError(f"TABWISE_DATABASE_URL must be postgresql+psycopg://…: {_reason(error)}") from None
    try:
        async with async_sessions(engine)() as session:
            await Repository(session).check()
    except ProgrammingError:
        raise SettingsError("the database has no tables yet: run `python -m migrations` first") from None
    except SQLAlchemyError as error:
        raise SettingsError(f"the database of TABWISE_DATABASE_URL cannot be reached: {_reason(error)}") from None
    finally:
        await engine.dispose()
    await _look_for_redis(settings)


async def _look_for_redis(settings: IngestSettings) -> None:
    try:
        streams = RedisStreams.from_url(settings.redis_url)
    except ValueError as error:
        raise SettingsError(f"TABWISE_REDIS_URL: {error}") from None
    try:
        await streams.ping()
    except TemporaryError:
        log.warning("redis away, feedback is taken all the same", setting="TABWISE_REDIS_URL")
    finally:
        await streams.close()


def _reason(error: Exception) -> str:
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return text.splitlines()[0] if text else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
