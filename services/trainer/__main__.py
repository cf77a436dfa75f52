"""`python -m services.trainer`: check the settings and be the worker; `… rounds`: show the last rounds.

Exit status 2: a setting must be changed, one sentence says which; 1: the learner did not start.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.table import Table

from services.trainer import checks, repository
from services.trainer.celery_app import run_worker
from services.trainer.settings import TrainerSettings
from shared.db.engine import make_engine, unit_of_work
from shared.db.models import MOVED_WEIGHTS, TrainingRoundRow
from shared.kit.errors import SettingsError

cli = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


@cli.callback(invoke_without_command=True)
def worker(context: typer.Context) -> None:
    """Claim experience, train, commit, until SIGTERM."""
    if context.invoked_subcommand is None:
        settings = TrainerSettings.load()
        checks.check(settings)
        raise typer.Exit(run_worker(settings))


@cli.command()
def rounds(last: int = typer.Option(20, min=1, help="How many.")) -> None:
    """Show the last training rounds, newest first."""
    settings = TrainerSettings.load()
    checks.check_database(settings.database_url)
    engine = make_engine(settings.database_url)
    with unit_of_work(engine) as session:
        found = repository.last_rounds(session, last)
    engine.dispose()
    Console().print(_table(found))


def _table(found: list[tuple[TrainingRoundRow, dict[str, int]]]) -> Table:
    table = Table(title="Training rounds")
    for heading in ("committed", "version", "on", "trained", "put aside", "reward", "loss", "KL", "seconds"):
        table.add_column(heading, justify="left" if heading in ("committed", "put aside") else "right")
    for row, counts in found:
        aside = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name not in MOVED_WEIGHTS)
        steps = row.stats.get("steps") or [{}]
        table.add_row(
            f"{row.committed_at:%Y-%m-%d %H:%M:%S}",
            "–" if row.version is None else str(row.version),
            str(row.parent_version),
            str(row.trained),
            aside,
            _number(row.stats.get("reward/shown_mean")),
            _number(steps[-1].get("loss")),
            _number(steps[-1].get("kl")),
            f"{(row.committed_at - row.started_at).total_seconds():.1f}",
        )
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def main() -> None:
    """Entry point; prints a wrong setting as one sentence."""
    try:
        cli()
    except SettingsError as error:
        print(f"trainer: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
