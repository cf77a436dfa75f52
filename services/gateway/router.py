"""Which replicas of the engine get a request, in the order in which to try them. Pure: the clock is passed in.

Healthy ones first: the one that the request's project and file belong to, so that its prefix cache has seen the prompt,
unless it has clearly more to do than the least loaded; then by load. Then those that drain for a publish, last those
that failed lately. Nobody is left out: with a single replica everything still works.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

GONE = frozenset({"connect", "probe"})
"""Failures that a good answer to a probe disproves; the others come from replicas whose `/health` may be fine."""
_MASK = (1 << 64) - 1


@dataclass(eq=False, slots=True)
class Replica:
    """One engine. `name` is its host and port: safe as a metric label."""

    url: str
    name: str
    seed: int
    """Differs between replicas, is the same in every gateway."""
    in_flight: int = 0
    failures: int = 0
    """In a row."""
    ejected_until_s: float = 0.0
    gone: bool = False
    """Ejected because it could not be reached."""
    draining_until_s: float = 0.0
    version: int | None = None
    """The newest policy version that it was seen sampling with."""


@dataclass(frozen=True, slots=True)
class Health:
    """When a replica is taken out, and for how long. Each further failure in a row doubles the time."""

    failures: int = 2
    ejection_s: float = 1.0
    longest_ejection_s: float = 30.0

    def ejected_s(self, failures: int) -> float:
        """After so many failures in a row; 0: not at all."""
        beyond = failures - self.failures
        return 0.0 if beyond < 0 else min(self.ejection_s * 2.0 ** min(beyond, 60), self.longest_ejection_s)


@dataclass(frozen=True, slots=True)
class Router:
    """The pool. `affinity_slack`: how many more requests than the least loaded a replica may have and still get those
    that belong to it; None: there is no affinity."""

    replicas: tuple[Replica, ...]
    health: Health = field(default_factory=Health)
    affinity_slack: int | None = 4
    clock: Callable[[], float] = time.monotonic
    turns: Iterator[int] = field(default_factory=itertools.count)
    """Equally loaded ones take turns."""

    def candidates(self, affinity: str) -> list[Replica]:
        """All replicas, best first. `affinity`: requests with the same value share a prompt prefix."""
        if len(self.replicas) == 1:
            return list(self.replicas)
        now = self.clock()
        start = next(self.turns) % len(self.replicas)
        turned = self.replicas[start:] + self.replicas[:start]
        ordered = sorted(turned, key=lambda replica: (_trouble(replica, now), replica.in_flight))
        if self.affinity_slack is not None:
            self._prefer(ordered, affinity, now)
        return ordered

    def _prefer(self, ordered: list[Replica], affinity: str, now: float) -> None:
        """Rendezvous hashing: where a replica goes, only its own requests move."""
        best = _trouble(ordered[0], now)
        equals = [replica for replica in ordered if _trouble(replica, now) == best]
        if len(equals) > 1 and self.affinity_slack is not None:
            key = int.from_bytes(hashlib.blake2b(affinity.encode(errors="replace"), digest_size=8).digest())
            home = max(equals, key=lambda replica: _mixed(key ^ replica.seed))
            if home.in_flight <= ordered[0].in_flight + self.affinity_slack:
                ordered.remove(home)
                ordered.insert(0, home)

    def failed(self, replica: Replica, kind: str) -> bool:
        """It did not answer, broke off or talked nonsense. Whether it is ejected for that."""
        replica.failures += 1
        now = self.clock()
        out_s = self.health.ejected_s(replica.failures)
        if out_s == 0.0:
            return False
        before = replica.ejected_until_s > now
        replica.gone = kind in GONE
        replica.ejected_until_s = max(replica.ejected_until_s, now + out_s)
        return not before

    def answered(self, replica: Replica) -> None:
        """It served a request to its end, or is back."""
        replica.failures, replica.ejected_until_s, replica.gone = 0, 0.0, False

    def probed(self, replica: Replica, well: bool) -> bool:
        """What `/health` says. Whether that ejected it; one that was gone and is back gets requests again at once."""
        now = self.clock()
        if not well:
            before = replica.ejected_until_s > now
            replica.gone = True
            replica.ejected_until_s = max(replica.ejected_until_s, now + self.health.longest_ejection_s)
            return not before
        if replica.gone:
            self.answered(replica)
        return False

    def drain(self, url: str, for_s: float) -> None:
        """Give `url` nothing new for so long; 0: it serves again. Unknown URLs are somebody else's."""
        for replica in self.replicas:
            if replica.url == url:
                replica.draining_until_s = self.clock() + for_s if for_s > 0 else 0.0

    def nothing_drains(self) -> None:
        """Forget all announcements."""
        for replica in self.replicas:
            replica.draining_until_s = 0.0

    def ejected(self, replica: Replica) -> bool:
        """Whether it is asked last now."""
        return replica.ejected_until_s > self.clock()

    def draining(self, replica: Replica) -> bool:
        """Whether a publish holds it now."""
        return replica.draining_until_s > self.clock()


def make_replicas(urls: Iterable[str]) -> tuple[Replica, ...]:
    """From base URLs without trailing slashes; a repeated one counts once."""
    return tuple(Replica(url, url.split("://", 1)[-1], _seed(url)) for url in dict.fromkeys(urls))


def _trouble(replica: Replica, now: float) -> int:
    if replica.ejected_until_s > now:
        return 2
    return 1 if replica.draining_until_s > now else 0


def _seed(url: str) -> int:
    return int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8, person=b"replica").digest())


def _mixed(value: int) -> int:
    """splitmix64's finaliser: every bit of the sum decides on every bit of the outcome."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
