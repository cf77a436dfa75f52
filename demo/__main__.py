"""`python -m demo`: start every part, let simulated developers work, show the model getting better, stop.

Prints one JSON line per figure last. Exit status 0 when every promise held, else 1 with a sentence for each that broke.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from demo import picture, summary
from demo.result import RunResult, broken_promises, figures, json_lines
from demo.run import run
from demo.settings import DemoConfig
from deploy.local.command import interruptible, sentences


def main(
    seeds: Annotated[str, typer.Option(help="One run for each, e.g. 1,2,3.")] = "1",
    developers: Annotated[int, typer.Option(min=1, help="How many developers work.")] = DemoConfig.model_fields[
        "developers"
    ].default,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long they work, in real minutes.")] = 5.0,
    events: Annotated[int | None, typer.Option(min=1, help="They also stop after so many feedback events.")] = None,
    speed: Annotated[float, typer.Option(min=0.1, help="Simulated seconds per real second.")] = 10.0,
    data_dir: Annotated[Path, typer.Option(help="Each run gets a folder `demo-SEED` in here.")] = Path("var"),
) -> None:
    """Start every part, let simulated developers work, show the model getting better, stop."""
    console = Console()
    results: list[RunResult] = []
    with sentences(), interruptible():
        for seed in _numbers(seeds):
            folder = data_dir / f"demo-{seed}"
            config = DemoConfig(
                seed=seed, developers=developers, work_s=minutes * 60, events=events, speed=speed, folder=folder
            )
            console.rule(f"Tabwise demo, seed {seed}: data in {folder}", align="left")
            results.append(run(config, console))
            picture.draw(results[-1], results[-1].folder / "learning.png")
            summary.print_summary(results[-1], console)
    broken = [sentence for result in results for sentence in broken_promises(result)]
    for sentence in broken:
        print(f"Tabwise: {sentence}", file=sys.stderr, flush=True)
    for line in json_lines(figures(results)):
        print(line, flush=True)
    raise typer.Exit(int(bool(broken)))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise typer.BadParameter("numbers separated by commas", param_hint="--seeds") from None


if __name__ == "__main__":
    typer.run(main)
