"""`python -m benchmarks.chaos_ingest --rounds 20`: kill everything in turn and at random, count, JSON lines last.

Exit status 1: something was lost or is there twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from benchmarks.chaos_ingest.account import Account, count
from benchmarks.chaos_ingest.consumer import prepare
from benchmarks.chaos_ingest.rounds import Ran, chaos
from benchmarks.chaos_ingest.victims import KINDS, scene


def lines(account: Account, ran: Ran, rounds: int, seed: int) -> list[dict[str, Any]]:
    """The figures, `lost` and `duplicated` first."""
    figures: dict[str, Any] = {
        "lost": account.lost.total(),
        "duplicated": account.duplicated.total(),
        "wrong": account.wrong.total(),
        "drained": ran.drained,
        "rounds": rounds,
        "seed": seed,
        "acknowledged": ran.promises.answers["acknowledged"],
        "refused_or_cut": ran.promises.answers.total() - ran.promises.answers["acknowledged"],
        "deliveries": ran.delivered,
        "generations_handed_over_again": ran.handed_over_again,
        "generations_dropped_by_gateway": ran.dropped,
    }
    figures |= {f"kills_{kind}": ran.kills[kind] for kind in KINDS}
    figures |= {f"lost_{kind}": number for kind, number in account.lost.items()}
    figures |= {f"duplicated_{kind}": number for kind, number in account.duplicated.items()}
    figures |= {f"found_{kind}": number for kind, number in account.there.items()}
    return [{"bench": "chaos_ingest", "figure": figure, "ours": value} for figure, value in figures.items()]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="kills; at least five reach everybody")] = 20,
    seed: Annotated[int, typer.Option(help="the same seed kills the same in the same order")] = 1,
    developers: Annotated[int, typer.Option(min=1, help="clients at work")] = 12,
    keep: Annotated[Path | None, typer.Option(help="folder that is left behind, with the logs")] = None,
) -> None:
    """Load, kill -9, count."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with tempfile.TemporaryDirectory(prefix="tabwise-chaos-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) if keep is None else keep.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        with scene(folder) as stage:
            prepare(stage.database_url)
            ran = asyncio.run(chaos(stage, rounds, developers, seed))
            account = count(stage.database_url, ran.promises)
    for line in lines(account, ran, rounds, seed):
        print(json.dumps(line), flush=True)
    raise typer.Exit(int(not (account.clean and ran.drained and ran.dropped == 0)))


if __name__ == "__main__":
    typer.run(main)
