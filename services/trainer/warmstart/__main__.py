"""Train the policy on your own repositories before anybody has used it.

    python -m services.trainer.warmstart --config configs/warmstart.yaml --dry-run   look at the samples first
    python -m services.trainer.warmstart --config configs/warmstart.yaml             train; killed, it goes on next time
    python -m services.trainer.warmstart --config configs/warmstart.yaml --publish   and hand it to the deployment

Everything is written below the configuration's `output`: checkpoints, log.jsonl, TensorBoard scalars, samples, and
`final`, a model folder for TABWISE_MODEL_PATH. Relative paths in the configuration start at its own folder.
All keys: docs/warmstart.md. Exit status 2: something must be changed, one sentence says what; 1: the run gave up.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from services.trainer.warmstart import screen
from services.trainer.warmstart.config import WarmStartConfig, load_config
from services.trainer.warmstart.result import FINAL
from services.trainer.warmstart.samples import build_samples
from services.trainer.warmstart.starting import whole_run
from shared.kit.errors import SettingsError, TabwiseError
from shared.kit.logging import configure_logging

EXAMPLES = 3
cli = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@cli.command(help=__doc__)
def warm_start(
    config: Annotated[Path, typer.Option(help="The YAML file; configs/warmstart.yaml explains every key.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Build the samples, print counts and three prompts, and stop.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what an earlier run left in `output`, and begin anew.")
    ] = False,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Afterwards commit the result as the next version of the deployment that TABWISE_DATABASE_URL, "
            "TABWISE_BROKER_URL, TABWISE_MODEL_PATH and TABWISE_CHECKPOINT_ROOT name.",
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Publish although the deployment has learned something else meanwhile.")
    ] = False,
) -> None:
    """See the module."""
    console = Console()
    settings = load_config(config)
    if dry_run:
        _look(console, settings)
        return
    try:
        _run(console, settings, restart=restart, publish=publish, replace=replace)
    except KeyboardInterrupt:
        _leave("stopped; the same command goes on from here", 130)


def _look(console: Console, config: WarmStartConfig) -> None:
    samples = build_samples(config)
    screen.show_counts(console, samples)
    screen.show_examples(console, samples.train[:EXAMPLES])


def _run(console: Console, config: WarmStartConfig, *, restart: bool, publish: bool, replace: bool) -> None:
    state = whole_run(config, console, restart=restart)
    folder = config.output / FINAL
    evaluations = state.evaluations
    screen.show_result(console, evaluations[0], evaluations[-1])
    console.print(f"\nThe model is in {folder}. To serve it, and to go on learning from it online:\n", highlight=False)
    console.print(f"  TABWISE_MODEL_PATH={folder} make up\n", highlight=False, soft_wrap=True)
    if publish:
        from services.trainer.warmstart.publishing import publish_result

        version = publish_result(config, state, replace=replace)
        console.print(f"Committed as version {version} of the running deployment; the publisher was told.")


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point; prints what must be changed as one sentence."""
    configure_logging("warmstart", "WARNING")
    signal.signal(signal.SIGTERM, _stop)
    try:
        cli()
    except TabwiseError as error:
        _leave(str(error), 2 if isinstance(error, SettingsError) else 1)


def _leave(sentence: str, status: int) -> NoReturn:
    print(f"warmstart: {sentence}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
