"""`python -m deploy.local up|down|status|logs|check|module|editor`: Tabwise on this machine, without containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.local import continue_config, preflight
from deploy.local.command import interruptible, sentences
from deploy.local.config import StackConfig
from deploy.local.processes import Family
from deploy.local.programs import all_programs
from deploy.local.screen import StartScreen
from deploy.local.stack import Stack
from deploy.local.supervision import PartState, Supervisor
from shared.kit.errors import TabwiseError, TemporaryError

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="data folder; also TABWISE_DATA_DIR")]

_STOP_S = 150


@app.command()
def up(data_dir: DataDir = None) -> None:
    """Start every part, print the editor's settings, and stay until Ctrl-C."""
    console = Console()
    with sentences(), interruptible(exit_status=0):
        _run(_config(data_dir), console)


@app.command()
def down(data_dir: DataDir = None) -> None:
    """Stop the stack that runs in the data folder."""
    with sentences():
        config = _config(data_dir)
        owner, family = preflight.owner(config), _family(config)
        if owner is None and family is None:
            print(f"nothing is running in {config.root}")
            return
        _stop(config, owner, family)
        print("stopped")


@app.command()
def status(data_dir: DataDir = None) -> None:
    """Say which parts run. Exit status 1 unless all of them do and answer."""
    with sentences():
        config = _config(data_dir)
        states = {state.name: state for state in _states(config)}
        checks = {part.name: part.check() for part in all_programs(config)}
        Console().print(_status_table(states, checks))
        raise typer.Exit(int(any(checks.values())))


@app.command()
def logs(
    part: Annotated[str | None, typer.Argument(help="one part; all where left out")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="keep printing what is added")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="how many last lines of each")] = 40,
    data_dir: DataDir = None,
) -> None:
    """Print the last lines of one part's log, or of all."""
    with sentences():
        files = sorted(_config(data_dir).logs.glob(f"{part or '*'}.log"))
        if not files:
            raise TabwiseError("there is no such log yet; the parts are: engine, gateway, ingest, …")
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), *map(str, files)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command()
def check(data_dir: DataDir = None) -> None:
    """Ask for one completion, send one feedback event, and say step by step what worked."""
    with sentences():
        config = _config(data_dir)
        urls = ["--gateway", config.gateway_url, "--ingest", config.ingest_url]
    environment = {**os.environ, "TABWISE_CLIENT_KEY": config.key}
    command = [sys.executable, "-m", "clients.check", *urls]
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def module(context: typer.Context, data_dir: DataDir = None) -> None:
    """Run a Python module with the services' settings, e.g. `module services.publisher rollback --to 3`."""
    with sentences():
        environment = _config(data_dir).environment()
    command = [sys.executable, "-m", *context.args]
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


@app.command()
def editor(data_dir: DataDir = None) -> None:
    """Print the blocks for Continue's settings again."""
    with sentences():
        print_editor_settings(_config(data_dir), Console())


def print_editor_settings(config: StackConfig, console: Console) -> None:
    """Stock Continue first, RLinf's fork second; plain text, so that it can be pasted."""
    console.rule("Continue (as published): ~/.continue/config.yaml", align="left")
    print(continue_config.stock(config))
    console.rule("RLinf's modified Continue instead", align="left")
    print(continue_config.fork(config))


def _run(config: StackConfig, console: Console) -> None:
    screen = StartScreen(console)
    stack = Stack(config, screen)
    try:
        with screen:
            stack.start()
        print_editor_settings(config, console)
        print(f"Tabwise is up: completions at {config.gateway_url}, feedback at {config.ingest_url}.")
        if not config.postgres.folder.is_relative_to(config.root):
            print(f"PostgreSQL's data is in {config.postgres.folder}: its account cannot enter {config.root}.")
        print(f"Logs are in {config.logs}, everything else in {config.root}. Ctrl-C stops it.", flush=True)
        stack.watch()
    except KeyboardInterrupt:
        console.print("stopping …")
        raise
    finally:
        stack.stop()


def _config(data_dir: Path | None) -> StackConfig:
    return StackConfig.load() if data_dir is None else StackConfig.load(data_dir=data_dir)


def _states(config: StackConfig) -> list[PartState]:
    try:
        return Supervisor(config).states()
    except TemporaryError:
        raise TabwiseError(f"nothing is running in {config.root}") from None


def _status_table(states: dict[str, PartState], checks: dict[str, str | None]) -> Table:
    table = Table("part", "process", "since", "answers")
    for name, reason in checks.items():
        state = states[name]
        answer = "[green]yes[/]" if reason is None else f"[red]{reason}[/]"
        table.add_row(
            name, f"{state.state.lower()} {state.pid or ''}", state.description.partition("uptime ")[2], answer
        )
    return table


def _family(config: StackConfig) -> Family | None:
    """What supervisord started; None: nothing of it lives."""
    file = config.root / "supervisord.pid"
    if not file.exists():
        return None
    family = Family(int(file.read_text()))
    return family if family.members() else None


def _stop(config: StackConfig, owner: int | None, family: Family | None) -> None:
    """Ask the `up` that owns the stack; where it is gone, stop what it left behind."""
    asked = True
    if owner is not None:
        os.kill(owner, signal.SIGTERM)
    elif Supervisor(config).answers():
        Supervisor(config).shutdown()
    else:
        asked = False
    deadline = time.monotonic() + (_STOP_S if asked else 0)
    while time.monotonic() < deadline and (preflight.owner(config) or (family and family.members())):
        time.sleep(0.25)
    if family is not None:
        family.end()


if __name__ == "__main__":
    sys.exit(app())
