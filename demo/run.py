"""One run: start the stack, evaluate, let the team work, wait until all of it is learnt, evaluate again, stop.

In: a `DemoConfig`. Out: a `RunResult`, measured from the ledger and from what the simulated developers saw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from rich.console import Console

from clients.developer.evaluation import EvaluationConfig, EvaluationReport, evaluate
from clients.developer.report import TeamReport
from clients.developer.team import TeamConfig, run_team
from demo.ledger import Ledger, Snapshot
from demo.result import RunResult
from demo.screen import WorkScreen
from demo.settings import DemoConfig
from deploy.local.screen import StartScreen
from deploy.local.stack import Stack

_LOOK_EVERY_S = 1.0
_QUIET_LOOKS = 2
_SERVED_MODEL = "tabwise"

T = TypeVar("T")
During = Callable[[Stack, Snapshot], None]


def run(config: DemoConfig, console: Console, during: During | None = None) -> RunResult:
    """One run from an empty folder. `during` is called about once a second while the developers work.

    Raises `SettingsError` or `StackError` where the stack does not start or dies. Use it from the main thread.
    """
    began = time.monotonic()
    stack_config = config.stack()
    stack_config.erase()
    screen = StartScreen(console)
    stack = Stack(stack_config, screen)
    try:
        with screen:
            stack.start()
        result = asyncio.run(_Run(config, console, stack, during).measure())
    finally:
        stack.stop()
    return replace(result, seconds=time.monotonic() - began)


class _Run:
    """What happens between start and stop."""

    def __init__(self, config: DemoConfig, console: Console, stack: Stack, during: During | None) -> None:
        self._config = config
        self._console = console
        self._stack = stack
        self._during = during
        self._ledger = Ledger(stack.config.database_url)
        self._screen = WorkScreen(console, config)
        self._settled = asyncio.Event()
        self._quiet_looks: int | None = None

    async def measure(self) -> RunResult:
        """Evaluate, work, settle, evaluate, read the ledger."""
        try:
            before = await self._evaluate("before")
            with self._screen:
                team = await self._work()
            after = await self._evaluate("after")
            return self._result(team, before, after)
        finally:
            self._ledger.close()

    async def _evaluate(self, when: str) -> EvaluationReport:
        """The engine is asked itself: greedily, and without a trace in the ledger."""
        config = EvaluationConfig(
            gateway_url=self._stack.config.engine_url,
            model=_SERVED_MODEL,
            key=self._stack.config.key,
            moments=self._config.evaluation_moments,
        )
        report = await evaluate(config)
        self._console.print(
            f"{report.moments} held-out moments {when}: reward {report.mean_reward or 0:+.3f}, "
            f"acceptance {report.acceptance or 0:.1%} ({report.wall_s:.0f} s)",
            highlight=False,
        )
        return report

    async def _work(self) -> TeamReport:
        watch = asyncio.create_task(self._watch())
        try:
            team = await _unless_ended(watch, run_team(self._team_config(), self._screen.team))
            self._screen.phase = "the last feedback is learnt and published"
            self._during = None
            await _unless_ended(watch, self._settle())
            return team
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    def _team_config(self) -> TeamConfig:
        stack = self._stack.config
        return TeamConfig(
            gateway_url=stack.gateway_url,
            ingest_url=stack.ingest_url,
            key=stack.key,
            developers=self._config.developers,
            seed=self._config.seed,
            speed=self._config.speed,
            seconds=self._config.work_s,
            events=self._config.events,
        )

    async def _watch(self) -> None:
        """Until cancelled. Raises `StackError` when a part keeps dying."""
        while True:
            snapshot = await asyncio.to_thread(self._look)
            if self._quiet_looks is not None:
                self._quiet_looks = 0 if snapshot.waiting else self._quiet_looks + 1
                if self._quiet_looks == _QUIET_LOOKS:
                    self._settled.set()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _look(self) -> Snapshot:
        self._stack.check_alive()
        snapshot = self._ledger.snapshot()
        self._screen.ledger(snapshot)
        if self._during is not None:
            self._during(self._stack, snapshot)
        return snapshot

    async def _settle(self) -> None:
        """Until two looks in a row find nothing on its way any more, or the time is over."""
        self._quiet_looks = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.settle_s):
                await self._settled.wait()

    def _result(self, team: TeamReport, before: EvaluationReport, after: EvaluationReport) -> RunResult:
        ledger = self._ledger
        return RunResult(
            seed=self._config.seed,
            folder=self._stack.config.root,
            team=team,
            end=ledger.snapshot(),
            verdicts=ledger.verdicts(),
            publishes=ledger.publishes(),
            versions=ledger.versions(),
            versions_served=ledger.versions_served(),
            feedback_to_served_s=ledger.feedback_to_served_s(),
            dispositions=ledger.dispositions(),
            before=before,
            after=after,
            peak_rss_mb=self._stack.peak_rss_mb,
        )


async def _unless_ended(watch: asyncio.Task[None], work: Coroutine[Any, Any, T]) -> T:
    """The work's result; where the watch ends first, its exception."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({watch, task}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
        return await task
    finally:
        task.cancel()
