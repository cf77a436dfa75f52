"""One run of the whole system for all end-to-end tests, and its figures as the last thing printed.

Real vLLM, DeepSpeed, PostgreSQL, Redis and Celery; simulated developers. The trainer is killed once on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from demo import picture
from demo.ledger import Snapshot
from demo.result import RunResult, figures, json_lines
from demo.run import run
from demo.settings import DemoConfig
from deploy.local.config import REPOSITORY
from deploy.local.stack import Stack
from tests.e2e.typed import Typed

_FOLDER = REPOSITORY / "var" / "e2e"
_LINES = pytest.StashKey[list[str]]()


@dataclass
class TrainerKiller:
    """`kill -9` of the trainer, once, as soon as a second round can be on its way."""

    after_minibatches: int = 1
    trained_at_kill: int | None = field(default=None, init=False)

    def __call__(self, stack: Stack, now: Snapshot) -> None:
        if (
            self.trained_at_kill is None
            and now.minibatches >= self.after_minibatches
            and now.experience_sent > now.experience_done
        ):
            stack.kill("trainer")
            self.trained_at_kill = now.experience_trained


@dataclass(frozen=True)
class Loop:
    """What the tests look at."""

    result: RunResult
    trained_at_kill: int | None
    logs: Path
    typed: frozenset[str]
    """Lines of code and paths that went through it."""


@pytest.fixture(scope="session")
def loop(request: pytest.FixtureRequest) -> Loop:
    """The run: about four minutes on two cores."""
    killer, typed = TrainerKiller(), Typed()

    def during(stack: Stack, now: Snapshot) -> None:
        killer(stack, now)
        typed(stack, now)

    config = DemoConfig(seed=11, work_s=150, events=400, settle_s=240, evaluation_moments=300, folder=_FOLDER)
    result = run(config, Console(), during)
    picture.draw(result, result.folder / "learning.png")
    request.config.stash[_LINES] = list(json_lines(figures([result])))
    return Loop(result, killer.trained_at_kill, result.folder / "logs", frozenset(typed.lines))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After pytest's own summary."""
    for line in config.stash.get(_LINES, []):
        print(line)
