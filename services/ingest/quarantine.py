"""`python -m services.ingest.quarantine list|release|add`: keys whose feedback nothing is learned from.

In: what the guard found, with its figures. Out: `release` lets a key teach again, from then on; what was withheld stays
withheld. `add` is the operator's own quarantine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest import quarantine_queries as queries
from shared.db.engine import async_sessions, make_async_engine
from shared.db.models import QuarantineRow
from shared.kit.clock import utc_now
from shared.kit.settings import ServiceSettings

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
T = TypeVar("T")
Key = Annotated[str, typer.Argument(help="the key's id, as `list` and `make keys` show it")]
FAILED = 2
WIDTH = 160


class QuarantineSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"


@app.command("list")
def list_keys() -> None:
    """All keys that are or were in quarantine, why, and the figures."""
    rows = _run(queries.all_quarantined)
    if not rows:
        print("no key is or was in quarantine")
        return
    table = Table("key", "state", "since (UTC)", "rule", "withheld", "evidence")
    for row, withheld in rows:
        table.add_row(row.key_id, _state(row), f"{row.since:%Y-%m-%d %H:%M:%S}", row.rule, str(withheld), _figures(row))
    Console(width=None if Console().is_terminal else WIDTH).print(table)


@app.command()
def release(key_id: Key) -> None:
    """Learn from this key again, from now on."""
    if not _run(lambda session: queries.release(session, key_id, utc_now())):
        _fail(f"the key {key_id} is not in quarantine")
    print(f"released: {key_id}")


@app.command()
def add(key_id: Key) -> None:
    """Learn nothing from this key until it is released, whatever it does."""

    async def act(session: AsyncSession) -> bool:
        new = await queries.quarantine(session, key_id, "by_hand", {}, utc_now())
        await queries.withdraw(session, key_id)
        return new

    if not _run(act):
        _fail(f"the key {key_id} is in quarantine already")
    print(f"quarantined: {key_id}")


def _state(row: QuarantineRow) -> str:
    return "quarantined" if row.released_at is None else f"released {row.released_at:%Y-%m-%d %H:%M:%S}"


def _figures(row: QuarantineRow) -> str:
    """Those of the key; what they were held against stands in the row itself."""
    return ", ".join(f"{name} {value:g}" for name, value in row.evidence.items() if not name.startswith("limit_"))


def _run(work: Callable[[AsyncSession], Coroutine[Any, Any, T]]) -> T:
    async def connected() -> T:
        engine = make_async_engine(QuarantineSettings().database_url)
        try:
            async with async_sessions(engine).begin() as session:
                return await work(session)
        finally:
            await engine.dispose()

    try:
        return asyncio.run(connected())
    except (SQLAlchemyError, OSError) as error:
        _fail(f"the ledger cannot be used ({type(error).__name__}). Check TABWISE_DATABASE_URL")


def _fail(sentence: str) -> NoReturn:
    typer.secho(f"quarantine: {sentence}", fg="red", err=True)
    raise typer.Exit(FAILED)


if __name__ == "__main__":
    app()
