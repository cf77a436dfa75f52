"""`Streams` in memory: the twin for tests. It passes the same contract suite as the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.streams.protocol import DEAD_KEPT, DeadLetter, Entry, dead_stream


@dataclass
class _Claim:
    consumer: str
    at_s: float
    deliveries: int


@dataclass
class _Group:
    last: int = 0
    claims: dict[int, _Claim] = field(default_factory=dict)


@dataclass
class _Stream:
    entries: dict[int, bytes] = field(default_factory=dict)
    counter: int = 0
    groups: dict[str, _Group] = field(default_factory=dict)


class MemoryStreams:
    """Same promises as `RedisStreams`, one process, nothing kept."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._changed = asyncio.Condition()
        self.life = "1"
        """Of which life `instance` tells; a test begins another one."""
        self.dead: list[tuple[str, Entry, str]] = []
        self._reasons: dict[tuple[str, str], tuple[str, float]] = {}

    def _stream(self, name: str) -> _Stream:
        return self._streams.setdefault(name, _Stream())

    async def append(self, stream: str, payloads: Sequence[bytes], *, max_length: int | None = None) -> list[str]:
        state = self._stream(stream)
        ids = []
        for payload in payloads:
            state.counter += 1
            state.entries[state.counter] = payload
            ids.append(_entry_id(state.counter))
        while max_length is not None and len(state.entries) > max_length:
            del state.entries[next(iter(state.entries))]
        async with self._changed:
            self._changed.notify_all()
        return ids

    async def ensure_group(self, stream: str, group: str) -> None:
        self._stream(stream).groups.setdefault(group, _Group())

    async def read(self, stream: str, group: str, consumer: str, *, count: int, block_ms: int = 0) -> list[Entry]:
        deadline = time.monotonic() + block_ms / 1000
        while True:
            entries = self._claim_new(stream, group, consumer, count)
            left = deadline - time.monotonic()
            if entries or left <= 0:
                return entries
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait(), left)
                except TimeoutError:
                    return []

    def _claim_new(self, stream: str, group: str, consumer: str, count: int) -> list[Entry]:
        state = self._stream(stream)
        members = state.groups[group]
        fresh = [number for number in state.entries if number > members.last][:count]
        for number in fresh:
            members.last = number
            members.claims[number] = _Claim(consumer, time.monotonic(), 1)
        return [Entry(_entry_id(number), state.entries[number]) for number in fresh]

    async def read_own(self, stream: str, group: str, consumer: str, *, count: int) -> list[Entry]:
        return self._again(stream, group, count, lambda claim: claim.consumer == consumer, consumer)

    async def claim_idle(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        before = time.monotonic() - min_idle_ms / 1000
        return self._again(stream, group, count, lambda claim: claim.at_s <= before, consumer)

    def _again(self, stream, group, count, wanted, consumer) -> list[Entry]:  # type: ignore[no-untyped-def]
        state = self._stream(stream)
        members = state.groups[group]
        entries: list[Entry] = []
        for number, claim in sorted(members.claims.items()):
            if len(entries) < count and wanted(claim) and number in state.entries:
                members.claims[number] = _Claim(consumer, time.monotonic(), claim.deliveries + 1)
                entries.append(Entry(_entry_id(number), state.entries[number], 2))
        return entries

    async def ack(self, stream: str, group: str, entry_ids: Sequence[str]) -> None:
        state = self._stream(stream)
        for entry_id in entry_ids:
            number = _number(entry_id)
            state.groups[group].claims.pop(number, None)
            state.entries.pop(number, None)

    async def dead_letter(self, stream: str, group: str, entry: Entry, reason: str) -> None:
        self.dead.append((stream, entry, reason))
        (dead_id,) = await self.append(dead_stream(stream), [entry.payload], max_length=DEAD_KEPT)
        self._reasons[stream, dead_id] = (reason, time.time())
        await self.ack(stream, group, [entry.entry_id])

    async def dead_letters(self, stream: str, *, after: str | None = None, count: int = 100) -> list[DeadLetter]:
        dead = self._stream(dead_stream(stream)).entries
        behind = 0 if after is None else _number(after)
        ids = [_entry_id(number) for number in dead if number > behind][:count]
        return [DeadLetter(one, dead[_number(one)], *self._reasons[stream, one]) for one in ids]

    async def requeue(self, stream: str, entry_id: str) -> bool:
        payload = self._stream(dead_stream(stream)).entries.pop(_number(entry_id), None)
        if payload is not None:
            await self.append(stream, [payload])
        return payload is not None

    async def drop_dead(self, stream: str, entry_id: str) -> bool:
        return self._stream(dead_stream(stream)).entries.pop(_number(entry_id), None) is not None

    async def entries(self, stream: str, *, after: str | None = None, count: int = 100) -> list[Entry]:
        entries, behind = self._stream(stream).entries, 0 if after is None else _number(after)
        return [Entry(_entry_id(number), entries[number]) for number in entries if number > behind][:count]

    async def instance(self) -> str:
        return self.life

    async def length(self, stream: str) -> int:
        return len(self._stream(stream).entries)

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None


def _entry_id(number: int) -> str:
    return f"{number}-0"


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
