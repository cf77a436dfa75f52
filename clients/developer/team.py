"""A team of simulated developers as a library: ``report = await run_team(config, on_progress)``.

In: where the system is, who works, until when. Out: a ``TeamReport``. The team stops asking when enough events are
stored, the time is over, ``stop`` is set, or only failures come back; then every running rejection timer is awaited,
so that all feedback about what was shown is sent.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from clients.developer.continue_client import ContinueEditor, Place
from clients.developer.feedback import Destination, FeedbackSender
from clients.developer.persona import Persona, assign, load_personas
from clients.developer.report import StopReason, Tally, TeamProgress, TeamReport
from clients.developer.session import Developer, Pace
from clients.developer.wire import EditorSettings, FeedbackFormat
from clients.developer.work import team_modules, team_style

OnProgress = Callable[[TeamProgress], None]
_TICK_S = 0.2
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)


class TeamConfig(BaseModel):
    """Who works where, and until when. Neither ``events`` nor ``seconds``: until ``stop`` is set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway_url: str = "http://127.0.0.1:8081"
    ingest_url: str = "http://127.0.0.1:8082"
    key: str = Field(repr=False)
    project: str = "default"
    """``X-Project-ID`` of RLinf's format; a key that is bound to a project accepts that one alone."""
    developers: int = Field(default=8, ge=1)
    seed: int = 0
    speed: float = Field(default=10.0, gt=0)
    """Simulated seconds per real second. The server's latency and the developers' patience stay real."""
    events: int | None = Field(default=None, ge=1)
    """Stop asking once so many events are stored; those on their timers then still follow."""
    seconds: float | None = Field(default=None, gt=0)
    """Stop asking after so many real seconds."""
    give_up_after: int = Field(default=50, ge=1)
    """Stop when so many completions failed in a row."""
    personas: tuple[Persona, ...] = Field(default_factory=load_personas, min_length=1)
    feedback: FeedbackFormat | None = None
    """One feedback format for all, instead of each persona's own."""
    style: str = "harbor"
    """The team's taste: a style of the house codebase; `mixed` for none."""
    modules: int | None = Field(default=None, ge=1)
    """The team's number of files; None: always new ones."""
    model_timeout_ms: int = Field(default=400, ge=1)
    """Continue's ``modelTimeout``: a completion still streaming after 2.5 times this (real time) is cut."""


@dataclass(frozen=True, slots=True)
class _Desk:
    """A developer and what has to be finished after them."""

    developer: Developer
    editor: ContinueEditor
    sender: FeedbackSender


async def run_team(
    config: TeamConfig, on_progress: OnProgress | None = None, stop: asyncio.Event | None = None
) -> TeamReport:
    """Let the team work. ``on_progress`` is called five times a second and at the end.

    Raises ``SettingsError`` for an unknown style. An unreachable system is no exception: its failures are in the
    report, and ``stopped_because`` is ``failures``.
    """
    report = TeamReport(time.time(), config.seed, config.developers, config.speed, config.style)
    tally = Tally(report)
    pace = Pace(config.speed, stop or asyncio.Event())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=_TIMEOUT) as http:
        desks = _desks(config, http, pace, tally)

        def tell() -> None:
            if on_progress is not None:
                on_progress(tally.progress(sum(desk.editor.undecided for desk in desks)))

        watch = asyncio.create_task(_watch(config, tally, pace, tell))
        try:
            async with asyncio.TaskGroup() as group:
                for desk in desks:
                    group.create_task(_work(desk))
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
    tell()
    return tally.settle()


def _desks(config: TeamConfig, http: aiohttp.ClientSession, pace: Pace, tally: Tally) -> list[_Desk]:
    style = team_style(config.style)
    settings = EditorSettings(model_timeout_ms=config.model_timeout_ms)
    desks = []
    for number, assigned in enumerate(assign(config.personas, config.developers)):
        persona = assigned.model_copy(update={"feedback": config.feedback or assigned.feedback})
        name = f"dev{number:02d}"
        to = Destination(config.ingest_url, config.key, config.project, persona.feedback, settings)
        sender = FeedbackSender(http, to, tally.delivered)
        place = Place(config.gateway_url, config.key, f"machine-{name}", config.speed, settings)
        editor = ContinueEditor(http, place, sender.send, partial(tally.broke, name))
        seed = f"{config.seed}:{name}"
        work = team_modules(random.Random(seed), style, config.modules)
        desks.append(_Desk(Developer(name, persona, seed, work, editor, pace, tally), editor, sender))
    return desks


async def _work(desk: _Desk) -> None:
    await desk.developer.run()
    await desk.editor.finish()
    await desk.sender.drain()


async def _watch(config: TeamConfig, tally: Tally, pace: Pace, tell: Callable[[], None]) -> None:
    """Ends the work when it is time, and reports progress until it is cancelled."""
    while True:
        tell()
        reason = _stop_reason(config, tally)
        if reason is not None and not pace.stop.is_set():
            tally.report.stopped_because = reason
            pace.stop.set()
        await asyncio.sleep(_TICK_S)


def _stop_reason(config: TeamConfig, tally: Tally) -> StopReason | None:
    if config.events is not None and tally.report.events_sent >= config.events:
        return "events"
    if tally.failures_in_a_row >= config.give_up_after:
        return "failures"
    if config.seconds is not None and tally.elapsed_s >= config.seconds:
        return "seconds"
    return None
