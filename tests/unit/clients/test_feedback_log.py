"""Which displays Continue reports, and when. Times are ten seconds and half a second, divided by the speed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from clients.developer.continue_client import FeedbackLog
from tests.unit.clients.test_wire import OUTCOME

SPEED = 100.0
TEN_S = 10.0 / SPEED
HALF_S = 0.5 / SPEED


class Log:
    """A log at hundredfold speed that notes its events."""

    def __init__(self, speed: float = SPEED) -> None:
        self.events: list[tuple[str, bool]] = []
        self.log = FeedbackLog(lambda outcome, accepted: self.events.append((outcome.completion_id, accepted)), speed)

    def show(self, name: str, completion: str) -> None:
        self.log.displayed(replace(OUTCOME, completion_id=name, completion=completion))


async def test_tab_is_reported_at_once_and_once() -> None:
    it = Log()
    it.show("a", "return x")
    it.log.accepted("a")
    it.log.accepted("a")
    assert it.events == [("a", True)]
    await asyncio.sleep(TEN_S * 1.2)
    assert it.events == [("a", True)]


async def test_ten_seconds_without_tab_are_a_rejection() -> None:
    it = Log()
    it.show("a", "return x")
    await asyncio.sleep(TEN_S * 0.6)
    assert it.events == []
    await asyncio.sleep(TEN_S * 0.6)
    assert it.events == [("a", False)]


async def test_a_tab_after_the_rejection_is_a_second_event() -> None:
    it = Log()
    it.show("a", "return x")
    await it.log.drain()
    it.log.accepted("a")
    assert it.events == [("a", False), ("a", True)]


async def test_replaced_within_half_a_second_is_not_reported() -> None:
    it = Log()
    it.show("a", "return x")
    it.show("b", "self.total(1)")
    await it.log.drain()
    assert it.events == [("b", False)]


async def test_replaced_later_is_reported() -> None:
    it = Log()
    it.show("a", "return x")
    await asyncio.sleep(HALF_S * 3)
    it.show("b", "self.total(1)")
    await it.log.drain()
    assert it.events == [("a", False), ("b", False)]


async def test_continued_by_a_later_display_is_not_reported() -> None:
    it = Log()
    it.show("a", "return total(x)")
    await asyncio.sleep(HALF_S * 3)
    it.show("b", "total(x)")
    await it.log.drain()
    assert it.events == [("b", False)]


async def test_a_display_that_was_decided_is_not_taken_back() -> None:
    it = Log()
    it.show("a", "return total(x)")
    it.log.accepted("a")
    it.show("b", "total(x)")
    await it.log.drain()
    assert it.events == [("a", True), ("b", False)]


async def test_drain_waits_for_every_timer() -> None:
    it = Log()
    it.show("a", "first")
    await asyncio.sleep(TEN_S / 2)
    it.show("b", "second()")
    assert it.log.pending == 2
    await it.log.drain()
    assert it.log.pending == 0
    assert len(it.events) == 2
