"""``python -m clients.developer``: a team of simulated developers works against a running system."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from clients.developer.persona import DEFAULT_PERSONAS, load_personas
from clients.developer.report import TeamProgress, TeamReport, percentile
from clients.developer.team import TeamConfig, run_team
from clients.developer.wire import FeedbackFormat
from shared.kit.errors import SettingsError

EXIT_FAILURES = 1
EXIT_USAGE = 2


def main(
    gateway: Annotated[str, typer.Option(help="Base URL of the gateway, without /v1.")] = "http://127.0.0.1:8081",
    ingest: Annotated[str, typer.Option(help="Base URL of ingest.")] = "http://127.0.0.1:8082",
    key: Annotated[str, typer.Option(envvar="TABWISE_CLIENT_KEY", help="The team's API key.")] = ...,  # type: ignore[assignment]
    project: Annotated[str, typer.Option(help="X-Project-ID of RLinf's format; must be the key's.")] = "default",
    developers: Annotated[int, typer.Option(min=1, help="How many developers.")] = 8,
    seed: Annotated[int, typer.Option(help="Decides files, moments, reading times; not the server's timing.")] = 0,
    speed: Annotated[
        float,
        typer.Option("--speed", "--rate", min=0.01, help="Simulated seconds per real one. Patience stays real."),
    ] = 10.0,
    events: Annotated[int | None, typer.Option(min=1, help="Stop after so many stored feedback events.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop after so many real seconds.")] = None,
    personas: Annotated[
        Path, typer.Option(help="YAML file of personas.", show_default="configs/personas.yaml")
    ] = DEFAULT_PERSONAS,
    feedback: Annotated[
        FeedbackFormat | None, typer.Option(help="One format for all developers, instead of each persona's own.")
    ] = None,
    style: Annotated[str, typer.Option(help="The team's style of the house codebase; `mixed` for none.")] = "harbor",
    modules: Annotated[int | None, typer.Option(min=1, help="The team has only so many files.")] = None,
    model_timeout_ms: Annotated[int, typer.Option(min=1, help="Continue's modelTimeout; its default is 150.")] = 400,
    json: Annotated[bool, typer.Option("--json", help="The whole report as one line of JSON.")] = False,
) -> None:
    """Simulated developers type code of a house codebase, ask as Continue does, press Tab or not, and send feedback.

    With neither --events nor --seconds they work until Ctrl-C. Then all feedback about what was shown is still sent.
    Exit status: 0, or 1 when a completion or an event failed, or 2 for wrong options.
    """
    try:
        config = TeamConfig(
            gateway_url=gateway,
            ingest_url=ingest,
            key=key,
            project=project,
            developers=developers,
            seed=seed,
            speed=speed,
            events=events,
            seconds=seconds,
            personas=load_personas(personas),
            feedback=feedback,
            style=style,
            modules=modules,
            model_timeout_ms=model_timeout_ms,
        )
        report = asyncio.run(_run(config, Console(stderr=True)))
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    print(report.to_json().decode() if json else describe(report))
    if report.failed or report.events_failed:
        raise typer.Exit(EXIT_FAILURES)


def describe(report: TeamReport) -> str:
    """The report for a person."""
    rate = "none shown" if report.acceptance_rate is None else f"{report.acceptance_rate:.1%}"
    lines = [
        f"{report.developers} developers, {report.wall_s:.0f} s at speed {report.speed:g}, "
        f"stopped because: {report.stopped_because}",
        f"requests      {report.requests} ({report.reused} answers read on from an earlier one), "
        f"{report.empty} empty, {report.cancelled} too late, {len(report.failed)} failed",
        f"shown         {report.shown}: {report.accepted} accepted ({report.late_accepted} late), "
        f"{report.rejected} rejected, {report.unreported} without an event; acceptance {rate}",
        f"feedback      {report.events_sent} stored, {len(report.events_failed)} failed",
        f"first token   {_ms(report.first_token_s)}; until shown {_ms(report.total_s)}",
    ]
    if report.failed:
        worst = report.failed[0]
        lines.append(f"first failed completion: {worst.kind} {worst.status or ''} {worst.detail}")
    if report.events_failed:
        lost = report.events_failed[0]
        lines.append(f"first failed event: {lost.status or 'no answer'} {lost.detail}")
    return "\n".join(lines)


def describe_progress(progress: TeamProgress) -> str:
    """One line while it runs."""
    recent = "-" if progress.recent_acceptance is None else f"{progress.recent_acceptance:.0%}"
    return (
        f"{progress.elapsed_s:4.0f} s  shown {progress.shown}  accepted {progress.accepted}  "
        f"rejected {progress.rejected}  undecided {progress.undecided}  events {progress.events_sent}  "
        f"failed {progress.failed + progress.events_failed}  last 100: {recent} accepted"
    )


async def _run(config: TeamConfig, console: Console) -> TeamReport:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    status = console.status("starting") if console.is_terminal else nullcontext()
    with status as live:

        def show(progress: TeamProgress) -> None:
            if isinstance(live, Status):
                live.update(describe_progress(progress))

        return await run_team(config, show, stop)


def _ms(values: list[float]) -> str:
    p50, p95 = percentile(values, 50), percentile(values, 95)
    return "-" if p50 is None or p95 is None else f"p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms"


if __name__ == "__main__":
    typer.run(main)
