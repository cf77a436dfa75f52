"""``python -m clients.check``: is everything connected? For someone who debugs an editor's connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import httpx
import orjson
import typer

from clients.check.steps import Check, Step, Target
from clients.developer.wire import FeedbackFormat

_MARKS = {"ok": "ok     ", "failed": "FAILED ", "skipped": "skipped"}


def main(
    key: Annotated[str, typer.Option(envvar="TABWISE_CLIENT_KEY", help="The API key that the editor uses.")],
    gateway: Annotated[str, typer.Option(help="URL of the gateway.")] = "http://127.0.0.1:8081",
    ingest: Annotated[str, typer.Option(help="URL of ingest.")] = "http://127.0.0.1:8082",
    form: Annotated[
        FeedbackFormat, typer.Option("--format", help="Feedback of stock Continue, or of RLinf's modified Continue.")
    ] = "continue",
    project: Annotated[str, typer.Option(help="X-Project-ID of RLinf's format.")] = "default",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 30.0,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON per step.")] = False,
) -> None:
    """Ask for one completion, send one feedback event about it, and say step by step what worked.

    The event is a rejection (sent twice, to see that the second is taken and ignored). It is real feedback: the model
    will learn from it like from anyone's. Exit status: 0 when nothing failed, else 1.
    """
    target = Target(_base(gateway), _base(ingest), key, project, form)
    failed = False
    with httpx.Client(timeout=timeout) as http:
        for step in Check(target, http).steps():
            failed = failed or step.status == "failed"
            for line in _lines(step, json):
                typer.echo(line)
    if not json:
        typer.echo("Something does not work: see the hints." if failed else "Everything that was tried works.")
    raise typer.Exit(1 if failed else 0)


def _lines(step: Step, as_json: bool) -> Iterator[str]:
    if as_json:
        yield orjson.dumps(asdict(step)).decode()
        return
    yield f"{_MARKS[step.status]} {step.name:20} {step.detail}"
    if step.hint:
        yield f"{'':29}hint: {step.hint}"


def _base(url: str) -> str:
    """The URL as people paste it from the editor's settings, without its ``/v1``."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


if __name__ == "__main__":
    typer.run(main)
