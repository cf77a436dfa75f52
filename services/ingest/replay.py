"""`python -m services.ingest.replay --reward FILE`: compute a reward again over history, and compare.

Says how the rewards would differ from those that the displays were given, or from a second file's. Writes nothing
unless `--apply` is given. Exit status 2: a setting or a file must be changed, one sentence says which.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from sqlalchemy.exc import ArgumentError, ProgrammingError, SQLAlchemyError

from services.ingest.comparing import Figures
from services.ingest.replaying import Progress, Replay, Wish
from services.ingest.reward_files import read_reward
from services.ingest.settings import IngestSettings
from shared.db.engine import async_sessions, make_async_engine
from shared.kit.errors import SettingsError

cli = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)

_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@cli.command(help=__doc__)
def replay(
    reward: Annotated[Path, typer.Option(help="The reward to compute: a file like configs/rewards/default.yaml.")],
    compare: Annotated[
        Path | None, typer.Option(help="Compare with this reward; without it, with the reward that was given.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only what was resolved since: 2026-11-01, or 12h, 7d ago.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Store the rewards under the reward's name.")] = False,
    hand_over: Annotated[
        bool, typer.Option("--hand-over", help="With --apply: also give the trainer what it has not trained yet anew.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="With --apply: from the beginning, even if it was stopped half way.")
    ] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, max=5000, help="Outcomes in one transaction.")] = 500,
) -> None:
    if hand_over and not apply:
        raise SettingsError("--hand-over needs --apply: it writes")
    wish = Wish(
        read_reward(reward),
        read_reward(compare) if compare else None,
        since=parse_since(since, datetime.now(UTC)) if since else None,
        project_id=project,
        apply=apply,
        hand_over=hand_over,
    )
    progress = asyncio.run(_run(wish, batch_size=batch_size, restart=restart))
    if json_lines:
        for line in lines(wish, progress):
            print(json.dumps(line))
    else:
        _print(wish, progress, Console())


def parse_since(text: str, now: datetime) -> datetime:
    """A moment, or how long ago. No zone means UTC. Raises `SettingsError`."""
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise SettingsError("--since: must be a date like 2026-11-01, or 90m, 12h or 7d for so long ago") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def lines(wish: Wish, progress: Progress) -> list[dict[str, Any]]:
    """One object per policy version, and one for all."""
    comparison = progress.comparison
    named = {"replay": wish.reward.general.name, "against": _against(wish)}
    versions = [
        named | {"policy_version": version} | _figures(figures)
        for version, figures in sorted(comparison.versions.items())
    ]
    done = {"stored": comparison.stored, "handed_over": comparison.handed_over}
    return [*versions, named | {"policy_version": None} | _figures(comparison.total) | done]


async def _run(wish: Wish, *, batch_size: int, restart: bool) -> Progress:
    try:
        engine = make_async_engine(IngestSettings.load().database_url)
    except ArgumentError:
        raise SettingsError("TABWISE_DATABASE_URL must be postgresql+psycopg://…") from None
    replay = Replay(async_sessions(engine), wish, batch_size=batch_size)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("displays", total=None)
            return await replay.run(lambda at: bar.update(task, total=at.total, completed=at.done), restart=restart)
    except ProgrammingError:
        raise SettingsError("the database's tables are older than this program: run `python -m migrations`") from None
    except SQLAlchemyError as error:
        raise SettingsError(
            f"the database of TABWISE_DATABASE_URL failed ({type(error).__name__}); run the same again to go on"
        ) from None
    finally:
        await engine.dispose()


def _print(wish: Wish, progress: Progress, console: Console) -> None:
    comparison = progress.comparison
    table = Table(title=f"Reward {wish.reward.general.name}, compared with {_against(wish)}")
    for heading in ("policy", "displays", "mean before", "mean after", "changed", "sign flips", "correlation"):
        table.add_column(heading, justify="right")
    for version, figures in sorted(comparison.versions.items()):
        table.add_row(f"v{version}", *_cells(figures))
    table.add_section()
    table.add_row("all", *_cells(comparison.total))
    console.print(table)
    if comparison.total.undecided:
        console.print(f"{comparison.total.undecided} displays have no reward by one of the two, and are not counted.")
    if progress.resumed:
        console.print("Went on where an earlier run was stopped; the figures are those of both.")
    console.print(_written(wish, progress))


def _written(wish: Wish, progress: Progress) -> str:
    if not wish.apply:
        return "Nothing was written: --apply (make replay … APPLY=1) stores these rewards."
    comparison = progress.comparison
    stored = f"{comparison.stored} rewards stored as {wish.reward.general.name!r}"
    return f"{stored}, {comparison.handed_over} handed to the trainer again." if wish.hand_over else f"{stored}."


def _against(wish: Wish) -> str:
    return wish.compare.general.name if wish.compare else "the reward given"


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "count": figures.count,
        "undecided": figures.undecided,
        "mean_before": _rounded(figures.mean_before),
        "mean_after": _rounded(figures.mean_after),
        "changed": figures.changed,
        "sign_flips": figures.sign_flips,
        "correlation": _rounded(figures.correlation),
    }


def _cells(figures: Figures) -> list[str]:
    shown = {name: "–" if value is None else str(value) for name, value in _figures(figures).items()}
    return [shown[name] for name in ("count", "mean_before", "mean_after", "changed", "sign_flips", "correlation")]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main() -> None:
    """Entry point; prints what is wrong as one sentence."""
    try:
        cli()
    except SettingsError as error:
        print(f"replay: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
