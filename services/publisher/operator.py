"""What an operator can ask: which versions are there, go back to one, follow the newest again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from rich.table import Table
from sqlalchemy import Engine

from services.publisher import repository
from services.publisher.settings import PublisherSettings
from shared.contracts.names import BASE_POLICY_VERSION, QUEUE_PUBLISHER, TASK_RECONCILE
from shared.db.models import CheckpointRow, DeploymentRow
from shared.kit.errors import InvalidMessage, TemporaryError

log = structlog.get_logger()
_POLL_S = 0.2


def pin_version(database: Engine, version: int) -> None:
    """From the next look on this version is wanted. Raises `InvalidMessage` where it cannot be."""
    with repository.transaction(database) as session:
        row = repository.checkpoint(session, version)
        if version != BASE_POLICY_VERSION and row is None:
            raise InvalidMessage(f"there is no stored version {version}; see: python -m services.publisher versions")
        if row is not None and row.status == "failed":
            raise InvalidMessage(f"version {version} failed and cannot be served: {row.error}")
        repository.set_pin(session, version)


def follow_newest(database: Engine) -> int | None:
    """No version is pinned any more; returns the one that was."""
    with repository.transaction(database) as session:
        return repository.remove_pin(session)


def tell_worker(settings: PublisherSettings) -> None:
    """Ask the worker to look now. It also looks by itself, so a broker that is away costs seconds only."""
    app = Celery(broker=settings.broker_url, set_as_current=False)
    app.conf.broker_transport_options = {"socket_connect_timeout": 3}
    try:
        app.send_task(TASK_RECONCILE, queue=QUEUE_PUBLISHER, retry=False, expires=60)
    except (OperationalError, OSError) as error:
        log.warning("publisher not told", error=type(error).__name__)


def await_live(
    database: Engine, version: int, timeout_s: float, *, monotonic: Callable[[], float] = time.monotonic
) -> float:
    """Wait until `version` is live; returns the seconds.

    Raises `InvalidMessage` where it failed, `TemporaryError` where it takes longer than `timeout_s`.
    """
    began = monotonic()
    while True:
        with repository.transaction(database) as session:
            live = repository.live_version(session)
            row = repository.checkpoint(session, version)
            attempts = repository.deployments_of(session, version)
        if live == version:
            return monotonic() - began
        if row is not None and row.status == "failed":
            raise InvalidMessage(f"version {version} did not load, version {live} serves on: {row.error}")
        if monotonic() - began > timeout_s:
            raise TemporaryError(_why_not(version, live, attempts))
        time.sleep(_POLL_S)


def _why_not(version: int, live: int, attempts: Sequence[DeploymentRow]) -> str:
    last = attempts[-1].error if attempts else None
    reason = last or "is the publisher running?"
    return f"version {version} is pinned but not live yet, version {live} serves: {reason}"


def versions_table(database: Engine) -> Table:
    """Every stored version, newest first, and what is wanted."""
    with repository.transaction(database) as session:
        rows = repository.all_checkpoints(session)
        pinned = repository.pin(session)
        live = repository.live_version(session)
        last = {row.version: list(repository.deployments_of(session, row.version)) for row in rows}
    title = f"live: version {live}, " + ("following the newest" if pinned is None else f"pinned to {pinned}")
    table = Table(title=title)
    for heading in ("version", "on", "status", "stored", "live since", "MB", "pause ms", "probe diff", "why"):
        table.add_column(heading, justify="left" if heading in ("status", "why") else "right")
    for row in rows:
        table.add_row(*_cells(row, last[row.version]))
    table.add_row("0", "", "live" if live == BASE_POLICY_VERSION else "base", *[""] * 6)
    return table


def _cells(row: CheckpointRow, deployments: list[DeploymentRow]) -> list[str]:
    last = deployments[-1] if deployments else None
    difference = None if last is None else last.max_logprob_diff
    return [
        str(row.version),
        str(row.parent_version),
        row.status,
        f"{row.uploaded_at:%Y-%m-%d %H:%M:%S}",
        f"{row.live_at:%Y-%m-%d %H:%M:%S}" if row.live_at else "",
        f"{row.size_bytes / 1e6:.1f}",
        f"{last.pause_s * 1000:.0f}" if last else "",
        f"{difference:.2g}" if difference is not None else "",
        row.error or "",
    ]
