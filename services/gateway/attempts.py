"""The tries of one request: which replica next, and for how long. Pure.

Each candidate is tried once and given up after `try_timeout_s` while another is left; the last one may take what
remains of the first-token deadline. One that was given up only for being slow is asked again before nobody is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from services.gateway.router import Replica

MIN_TRY_S = 0.001


@dataclass(frozen=True, slots=True)
class Try:
    """Ask `replica`, and wait `limit_s` for its first token."""

    replica: Replica
    limit_s: float
    last: bool
    """Nobody else is left to ask: the limit is the request's own deadline."""


class Attempts:
    """`deadline_s` (monotonic) is the first token's; `busy` and `failed` count what went wrong so far."""

    def __init__(self, candidates: Sequence[Replica], deadline_s: float, try_timeout_s: float) -> None:
        self._left = deque(candidates)
        self._slow: set[Replica] = set()
        self.deadline_s = deadline_s
        self._try_timeout_s = try_timeout_s
        self.made = 0
        self.busy = 0
        self.failed = 0

    def next(self, now: float) -> Try | None:
        """None: everybody was asked, or the deadline is over."""
        remaining_s = self.deadline_s - now
        if not self._left or remaining_s < MIN_TRY_S:
            return None
        self.made += 1
        replica = self._left.popleft()
        last = not self._left
        return Try(replica, remaining_s if last else min(self._try_timeout_s, remaining_s), last)

    def too_slow(self, tried: Try) -> None:
        """No token within the limit."""
        self.failed += 1
        if not tried.last and tried.replica not in self._slow:
            self._slow.add(tried.replica)
            self._left.append(tried.replica)

    def is_busy(self) -> None:
        """It answered 429."""
        self.busy += 1

    def has_failed(self) -> None:
        """Anything else."""
        self.failed += 1

    @property
    def all_busy(self) -> bool:
        """Whether every replica that was asked is well and has too much to do."""
        return self.busy > 0 and self.failed == 0
