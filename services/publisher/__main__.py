"""`python -m services.publisher`: bring committed versions to the engines, until SIGTERM.

Further commands: `versions` shows what is stored and live, `rollback --to N` makes an earlier version live again and
keeps it, `follow` goes back to the newest. Exit status 2: a setting must be changed; 1: it could not be done.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from sqlalchemy import Engine

from services.publisher import checks, operator
from services.publisher.celery_app import create_celery
from services.publisher.settings import PublisherSettings
from shared.contracts.names import QUEUE_PUBLISHER
from shared.db.engine import make_engine
from shared.kit.errors import SettingsError, TabwiseError

cli = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)

WORKER = (
    "--quiet", "worker", "--pool", "solo", "--queues", QUEUE_PUBLISHER, "--hostname", "publisher@%h",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip


@cli.callback(invoke_without_command=True)
def worker(context: typer.Context) -> None:
    """Store, load, verify, until SIGTERM."""
    if context.invoked_subcommand is None:
        settings = PublisherSettings.load()
        checks.check(settings)
        create_celery(settings).worker_main(list(WORKER))


@cli.command()
def versions() -> None:
    """Show every stored version: status, when it was live, size, pause, and why it failed."""
    with _database() as (_, database):
        Console().print(operator.versions_table(database))


@cli.command()
def rollback(
    to: int = typer.Option(..., min=0, help="Version to serve; 0 is the base model."),
    timeout: float = typer.Option(60.0, min=0, help="Seconds to wait until it is live."),
) -> None:
    """Make an earlier version live again and keep it, whatever is trained meanwhile (undo: `follow`)."""
    with _database() as (settings, database):
        operator.pin_version(database, to)
        operator.tell_worker(settings)
        seconds = operator.await_live(database, to, timeout)
        print(f"version {to} is live again after {seconds:.1f} s and pinned; `follow` goes back to the newest")


@cli.command()
def follow() -> None:
    """Serve the newest version again, and every later one."""
    with _database() as (settings, database):
        pinned = operator.follow_newest(database)
        operator.tell_worker(settings)
        print("no version was pinned" if pinned is None else f"version {pinned} is not pinned any more")


@contextmanager
def _database() -> Iterator[tuple[PublisherSettings, Engine]]:
    settings = PublisherSettings.load()
    checks.check_database(settings.database_url)
    engine = make_engine(settings.database_url)
    try:
        yield settings, engine
    finally:
        engine.dispose()


def main() -> None:
    """Entry point; prints an error as one sentence."""
    try:
        cli()
    except SettingsError as error:
        print(f"publisher: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except TabwiseError as error:
        print(f"publisher: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
