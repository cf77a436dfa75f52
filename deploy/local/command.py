"""What every command of the embedded stack does alike: errors as sentences, signals that stop cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

import typer

from shared.kit.errors import TabwiseError

INTERRUPTED = 130


@contextmanager
def sentences() -> Iterator[None]:
    """One of the project's own errors becomes one sentence on standard error and exit status 1."""
    try:
        yield
    except TabwiseError as error:
        typer.secho(f"Tabwise: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


@contextmanager
def interruptible(exit_status: int = INTERRUPTED) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end the block with `KeyboardInterrupt`, and then the command."""

    def stop(number: int, frame: object) -> Never:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(exit_status) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
