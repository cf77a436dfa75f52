"""A tracker may fail, hang or never open: training doesn't notice, and what was lost is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.trainer.learner.tracking.background import Background
from services.trainer.learner.tracking.tracker import Run

RUN = Run("name", Path("nowhere"), {})


class Fake:
    """Takes what it is told, unless it is told not to."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []
        self.failing = False
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.gate.wait(5)
        if self.failing:
            raise ConnectionError("no route to https://user:secret@host/api")
        self.logged.append((dict(figures), step))

    def close(self) -> None:
        self.closed = True


def settled(background: Background) -> None:
    background.end()
    background.join(5)


def test_it_hands_over_in_order_and_closes() -> None:
    fake = Fake()
    background = Background("fake", lambda run: fake, RUN)
    for step in range(5):
        background.put({"train/loss": float(step)}, step)
    settled(background)
    assert [step for _, step in fake.logged] == [0, 1, 2, 3, 4]
    assert fake.closed
    assert background.take_lost() == 0


def test_a_tracker_that_fails_is_reported_once_without_passwords_and_counted() -> None:
    fake = Fake()
    fake.failing = True
    with capture_logs() as logs:
        background = Background("fake", lambda run: fake, RUN)
        for step in range(4):
            background.put({}, step)
        settled(background)
    assert background.take_lost() == 4
    assert background.take_lost() == 0
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [(entry["tracker"], entry["reason"]) for entry in warnings] == [
        ("fake", "ConnectionError: no route to https://***@host/api")
    ]


def test_one_that_hangs_slows_nothing_and_loses_only_what_does_not_fit() -> None:
    fake = Fake()
    fake.gate.clear()
    background = Background("fake", lambda run: fake, RUN, queued=3)
    background.put({}, 0)
    while background._waiting.qsize():
        time.sleep(0.001)  # the thread holds the first, and waits
    started = time.monotonic()
    for step in range(1, 11):
        background.put({}, step)
    background.end()
    background.join(0.05)
    assert time.monotonic() - started < 1
    assert background.take_lost() == 7
    fake.gate.set()


def test_one_that_cannot_be_opened_is_tried_again_later() -> None:
    fake, attempts = Fake(), []

    def opener(run: Run) -> Fake:
        attempts.append(run)
        if len(attempts) == 1:
            raise OSError("away")
        return fake

    background = Background("fake", opener, RUN, retry_s=0.1)
    background.put({}, 1)
    background.put({}, 2)
    while background._waiting.qsize():
        time.sleep(0.001)
    time.sleep(0.15)
    background.put({}, 3)
    settled(background)
    assert [step for _, step in fake.logged] == [3]
    assert len(attempts) == 2
    assert background.take_lost() == 2


def test_closing_one_that_fails_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setattr(fake, "close", lambda: 1 / 0)
    with capture_logs() as logs:
        background = Background("fake", lambda run: fake, RUN)
        background.put({}, 1)
        settled(background)
    assert logs[0]["reason"] == "ZeroDivisionError: division by zero"
