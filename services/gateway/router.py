"""Which replica of the engine gets a request: the least loaded one that has not just failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Replica:
    """One engine. `name` is its host and port: safe as a metric label."""

    url: str
    name: str
    in_flight: int = 0
    down_until_s: float = 0.0
    version: int | None = None
    """The newest policy version that it was seen sampling with."""


class Router:
    """The pool. Health is passive: whoever failed is asked last for a while, but is still asked."""

    def __init__(self, urls: list[str], cooldown_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.replicas = [Replica(url, url.split("://", 1)[-1]) for url in urls]
        self._cooldown_s = cooldown_s
        self._clock = clock

    def candidates(self) -> list[Replica]:
        """In the order in which to try them. A single one is tried twice: its idle connection may have just closed."""
        now = self._clock()
        ordered = sorted(self.replicas, key=lambda replica: (replica.down_until_s > now, replica.in_flight))
        return ordered if len(ordered) > 1 else ordered * 2

    def failed(self, replica: Replica) -> None:
        """It did not answer, or broke off."""
        replica.down_until_s = self._clock() + self._cooldown_s

    def answered(self, replica: Replica) -> None:
        """It works."""
        replica.down_until_s = 0.0
