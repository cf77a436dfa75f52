"""`python -m services.ingest.forget KEY_ID [--yes]`: deletes what is kept of one key, and names who learned from it.

In: the ledger and the streams of a running (or stopped) stack. Out: a table of what went. Weights that were trained
cannot be untrained: the versions are named, so that somebody can roll back before them or train anew without.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from services.ingest.forgetting import Forgetting, Found
from shared.db.engine import async_sessions, make_async_engine
from shared.kit.errors import TemporaryError
from shared.kit.settings import ServiceSettings
from shared.streams import RedisStreams

FAILED = 2
T = TypeVar("T")


class ForgetSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"
    redis_url: str = "redis://127.0.0.1:6379/0"


def main(
    key_id: Annotated[str, typer.Argument(help="the key's id, as `make keys` shows it; never the secret")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete everything that is kept of one key: code, feedback, experience, messages. Works while the stack runs."""
    found = _run(key_id, Forgetting.look)
    _show(found, f"kept of {key_id}")
    _name(found)
    if not found.total:
        print(f"nothing is kept of {key_id}")
        return
    if not yes and not typer.confirm("Delete all of it? This cannot be undone."):
        _fail("nothing was deleted")
    gone = _run(key_id, Forgetting.forget)
    _show(gone, f"deleted of {key_id}")
    _name(gone)
    left = _run(key_id, Forgetting.look)
    if left.total:
        _fail(f"{left.total} came in meanwhile: revoke the key (make keys REVOKE={key_id}) and run this again")


def _show(found: Found, title: str) -> None:
    table = Table("what", "how many", title=title, title_justify="left")
    for name, rows in found.rows.items():
        table.add_row(name, str(rows))
    Console().print(table)


def _name(found: Found) -> None:
    if not found.versions:
        print("no policy version learned from it")
        return
    named = ", ".join(f"v{version}" for version in found.versions)
    print(f"policy versions that learned from it: {named}; every later one builds on v{found.versions[0]}")


def _run(key_id: str, work: Callable[[Forgetting], Coroutine[Any, Any, T]]) -> T:
    async def connected() -> T:
        async with _forgetting(key_id) as forgetting:
            return await work(forgetting)

    try:
        return asyncio.run(connected())
    except SQLAlchemyError as error:
        _fail(f"the ledger cannot be used ({type(error).__name__}). Check TABWISE_DATABASE_URL; run it again")
    except (TemporaryError, ValueError) as error:
        _fail(f"not finished ({error}). Check TABWISE_REDIS_URL; run it again")


@asynccontextmanager
async def _forgetting(key_id: str) -> AsyncIterator[Forgetting]:
    settings = ForgetSettings()
    engine = make_async_engine(settings.database_url)
    streams = RedisStreams.from_url(settings.redis_url)
    try:
        yield Forgetting(key_id, async_sessions(engine), streams)
    finally:
        await streams.close()
        await engine.dispose()


def _fail(sentence: str) -> NoReturn:
    typer.secho(f"forget: {sentence}", fg="red", err=True)
    raise typer.Exit(FAILED)


if __name__ == "__main__":
    typer.run(main)
