"""`python -m services.ingest.acceptance_table`: acceptance figures as a table, from the ledger of the settings.

Exit status 2: a setting or an option must be changed, one sentence says which.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from services.ingest.acceptance import (
    DEFAULT_SINCE,
    DIMENSIONS,
    Acceptance,
    AcceptanceGroup,
    Bucket,
    Wish,
    dimensions_of,
    period,
)
from services.ingest.acceptance_queries import read_acceptance
from services.ingest.settings import IngestSettings
from shared.db.engine import async_sessions, make_async_engine
from shared.keys import KeyRing
from shared.kit.errors import SettingsError

cli = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)
HEADINGS = ("asked", "shown", "taken", "part", "left", "rate", "95 %", "reward", "chars")
"""Short, so that eighty columns hold them."""


@cli.command(help=__doc__)
def acceptance(
    by: Annotated[str, typer.Option(help=f"Some of {', '.join(DIMENSIONS)}, separated by commas.")] = "project",
    since: Annotated[str, typer.Option(help="2026-11-01, or 12h, 7d ago.")] = DEFAULT_SINCE,
    until: Annotated[str | None, typer.Option(help="The same; now, if left out.")] = None,
    bucket: Annotated[Bucket | None, typer.Option(help="Also by hour or by day.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
) -> None:
    settings = IngestSettings.load()
    try:
        wish = Wish(dimensions_of(by, bucket), *period(since, until, datetime.now(UTC)), bucket, project)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    found = asyncio.run(_read(settings, wish))
    console = Console()
    console.print(_table(found))
    if found.truncated:
        console.print("There are more groups: ask for a shorter period, or for fewer dimensions.")


async def _read(settings: IngestSettings, wish: Wish) -> Acceptance:
    keys = KeyRing.open(settings.api_keys, settings.keys_file)
    try:
        engine = make_async_engine(settings.database_url)
    except ArgumentError:
        raise SettingsError("TABWISE_DATABASE_URL must be postgresql+psycopg://…") from None
    try:
        async with async_sessions(engine)() as session:
            return await read_acceptance(session, wish, settings, keys.names)
    except SQLAlchemyError as error:
        raise SettingsError(f"the database of TABWISE_DATABASE_URL failed ({type(error).__name__})") from None
    finally:
        await engine.dispose()


def _table(found: Acceptance) -> Table:
    table = Table(
        title=f"Acceptance, {found.since:%Y-%m-%d %H:%M} to {found.until:%Y-%m-%d %H:%M} UTC",
        caption="asked: completions requested · taken, part, left: accepted whole, in part, rejected · chars: accepted",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for name in found.group_by:
        table.add_column(name)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for group in found.groups:
        table.add_row(*(str(group.group[name]) for name in found.group_by), *_figures(group))
    return table


def _figures(group: AcceptanceGroup) -> list[str]:
    low, high = group.rate_low, group.rate_high
    return [
        "–" if group.requested is None else str(group.requested),
        str(group.shown),
        str(group.accepted),
        str(group.partially_accepted),
        str(group.rejected),
        "–" if group.acceptance_rate is None else f"{group.acceptance_rate:.1%}",
        "–" if low is None or high is None else f"{low:.1%}–{high:.1%}",
        "–" if group.mean_reward is None else f"{group.mean_reward:+.3f}",
        str(group.accepted_chars),
    ]


def main() -> None:
    """Entry point; prints what is wrong as one sentence."""
    try:
        cli()
    except SettingsError as error:
        print(f"acceptance: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
