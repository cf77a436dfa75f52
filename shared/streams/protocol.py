"""The seam: what services may ask of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

DEAD_KEPT: Final = 10_000
"""Dead letters of a stream that are kept, about; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stream entry. `deliveries` counts how often it was handed out, this time included."""

    entry_id: str
    payload: bytes
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What was put aside: the bytes as they came, why, and since when (seconds since 1970, the server's clock)."""

    entry_id: str
    payload: bytes
    reason: str
    dead_since_s: float


def dead_stream(stream: str) -> str:
    """Where the dead letters of a stream are."""
    return f"{stream}:dead"


class Streams(Protocol):
    """A set of named streams. Every method raises `TemporaryError` while the server is away."""

    async def append(self, stream: str, payloads: Sequence[bytes], *, max_length: int | None = None) -> list[str]:
        """Append payloads in order; returns their entry ids. `max_length` trims the oldest, approximately."""

    async def ensure_group(self, stream: str, group: str) -> None:
        """Create the group (and the stream) unless they exist; the group sees entries from the beginning."""

    async def read(self, stream: str, group: str, consumer: str, *, count: int, block_ms: int = 0) -> list[Entry]:
        """Claim up to `count` new entries for `consumer`, waiting up to `block_ms` (0: do not wait)."""

    async def read_own(self, stream: str, group: str, consumer: str, *, count: int) -> list[Entry]:
        """Entries that `consumer` claimed earlier and never acknowledged, oldest first."""

    async def claim_idle(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        """Take over entries that another consumer claimed and left for `min_idle_ms`."""

    async def ack(self, stream: str, group: str, entry_ids: Sequence[str]) -> None:
        """Acknowledge and delete. Unknown ids are ignored."""

    async def dead_letter(self, stream: str, group: str, entry: Entry, reason: str) -> None:
        """Move one entry to `<stream>:dead` with the reason and acknowledge it, at once. Keeps about `DEAD_KEPT`."""

    async def dead_letters(self, stream: str, *, after: str | None = None, count: int = 100) -> list[DeadLetter]:
        """Up to `count` dead letters of `stream`, oldest first, those behind the entry `after` alone."""

    async def requeue(self, stream: str, entry_id: str) -> bool:
        """Move a dead letter back to the end of its stream, bytes unchanged; False where it is not there."""

    async def drop_dead(self, stream: str, entry_id: str) -> bool:
        """Delete a dead letter; False where it is not there."""

    async def entries(self, stream: str, *, after: str | None = None, count: int = 100) -> list[Entry]:
        """A look at up to `count` entries, claimed or not, oldest first, those behind `after` alone. Claims nothing."""

    async def instance(self) -> str:
        """Which life of the server this is. After another life began, what it took lately may be gone.

        Redis with `appendfsync everysec` answers before it writes while the disk is busy: a crash, also of the process
        alone, loses up to about two seconds of what it acknowledged. Who must not lose keeps it for that long.
        """

    async def length(self, stream: str) -> int:
        """Entries that are not acknowledged yet, claimed or not."""

    async def ping(self) -> None:
        """Raises `TemporaryError` while the server is away."""

    async def close(self) -> None:
        """Give back the connections."""
