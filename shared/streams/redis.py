"""`Streams` over a real Redis (6.2 or later)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError, WatchError

from shared.kit.errors import TemporaryError
from shared.streams.protocol import DEAD_KEPT, DeadLetter, Entry, dead_stream

FIELD = b"payload"
REASON = b"reason"
TRIMMED_AT_ONCE = 1000


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Redis away, loading, read-only or full: all of them are for the caller to try again."""
    try:
        yield
    except (RedisError, RedisConnectionError, OSError, TimeoutError) as error:
        raise TemporaryError(f"redis: {error}") from error


class RedisStreams:
    """One connection pool; safe to share between tasks of one event loop."""

    def __init__(self, client: Redis) -> None:
        self._redis: Any = client

    @classmethod
    def from_url(cls, url: str, *, timeout_s: float = 2.0) -> Self:
        """Connects lazily. `timeout_s` bounds connecting and each call (blocking reads add their wait)."""
        return cls(Redis.from_url(url, socket_connect_timeout=timeout_s, socket_timeout=timeout_s + 10, protocol=2))

    async def append(self, stream: str, payloads: Sequence[bytes], *, max_length: int | None = None) -> list[str]:
        async with _translated():
            pipe = self._redis.pipeline(transaction=False)
            for payload in payloads:
                pipe.xadd(stream, {FIELD: payload}, maxlen=max_length, approximate=True)
            return [_text(entry_id) for entry_id in await pipe.execute()]

    async def ensure_group(self, stream: str, group: str) -> None:
        async with _translated():
            try:
                await self._redis.xgroup_create(stream, group, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    async def read(self, stream: str, group: str, consumer: str, *, count: int, block_ms: int = 0) -> list[Entry]:
        return _entries(await self._read(stream, group, consumer, b">", count=count, block=block_ms or None))

    async def read_own(self, stream: str, group: str, consumer: str, *, count: int) -> list[Entry]:
        while rows := await self._read(stream, group, consumer, b"0", count=count, block=None):
            if entries := _entries(rows):
                return [Entry(entry.entry_id, entry.payload, 2) for entry in entries]
            await self._forget_trimmed(stream, group, consumer)
        return []

    async def _read(
        self, stream: str, group: str, consumer: str, after: bytes, *, count: int, block: int | None
    ) -> list[Any]:
        async with _translated():
            answer = await self._redis.xreadgroup(group, consumer, {stream: after}, count=count, block=block)
        return list(answer[0][1]) if answer else []

    async def claim_idle(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        while rows := await self._claim(stream, group, consumer, min_idle_ms, count):
            if entries := _entries(rows):
                return [Entry(entry.entry_id, entry.payload, 2) for entry in entries]
            await self._forget_trimmed(stream, group, consumer)
        return []

    async def _claim(self, stream: str, group: str, consumer: str, min_idle_ms: int, count: int) -> list[Any]:
        async with _translated():
            answer = await self._redis.xautoclaim(
                stream, group, consumer, min_idle_time=min_idle_ms, start_id="0-0", count=count
            )
        return list(answer[1])

    async def _forget_trimmed(self, stream: str, group: str, consumer: str) -> None:
        """Entries that were trimmed while `consumer` held them come before all others of its own, for ever."""
        after = b"0"
        while rows := await self._read(stream, group, consumer, after, count=TRIMMED_AT_ONCE, block=None):
            after = rows[-1][0]
            await self.ack(stream, group, [_text(entry_id) for entry_id, fields in rows if not fields])

    async def ack(self, stream: str, group: str, entry_ids: Sequence[str]) -> None:
        if not entry_ids:
            return
        async with _translated():
            pipe = self._redis.pipeline(transaction=True)
            pipe.xack(stream, group, *entry_ids)
            pipe.xdel(stream, *entry_ids)
            await pipe.execute()

    async def dead_letter(self, stream: str, group: str, entry: Entry, reason: str) -> None:
        async with _translated():
            pipe = self._redis.pipeline(transaction=True)
            fields = {FIELD: entry.payload, REASON: reason.encode()}
            pipe.xadd(dead_stream(stream), fields, maxlen=DEAD_KEPT, approximate=True)
            pipe.xack(stream, group, entry.entry_id)
            pipe.xdel(stream, entry.entry_id)
            await pipe.execute()

    async def dead_letters(self, stream: str, *, after: str | None = None, count: int = 100) -> list[DeadLetter]:
        rows = await self._range(dead_stream(stream), after, count)
        return [_dead_letter(_text(entry_id), fields) for entry_id, fields in rows]

    async def requeue(self, stream: str, entry_id: str) -> bool:
        dead = dead_stream(stream)
        async with _translated(), self._redis.pipeline(transaction=True) as pipe:
            while True:
                try:
                    await pipe.watch(dead)
                    rows = await pipe.xrange(dead, min=entry_id, max=entry_id)
                    if not rows:
                        return False
                    pipe.multi()
                    pipe.xadd(stream, {FIELD: rows[0][1][FIELD]})
                    pipe.xdel(dead, entry_id)
                    await pipe.execute()
                    return True
                except WatchError:
                    continue

    async def drop_dead(self, stream: str, entry_id: str) -> bool:
        async with _translated():
            return bool(await self._redis.xdel(dead_stream(stream), entry_id))

    async def entries(self, stream: str, *, after: str | None = None, count: int = 100) -> list[Entry]:
        return _entries(await self._range(stream, after, count))

    async def _range(self, stream: str, after: str | None, count: int) -> list[Any]:
        async with _translated():
            return list(await self._redis.xrange(stream, min="-" if after is None else f"({after}", count=count))

    async def instance(self) -> str:
        async with _translated():
            return str((await self._redis.info("server"))["run_id"])

    async def length(self, stream: str) -> int:
        async with _translated():
            return int(await self._redis.xlen(stream))

    async def ping(self) -> None:
        async with _translated():
            await self._redis.ping()

    async def close(self) -> None:
        await self._redis.aclose()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _dead_letter(entry_id: str, fields: Mapping[bytes, bytes]) -> DeadLetter:
    reason = fields.get(REASON, b"").decode(errors="replace")
    return DeadLetter(entry_id, fields[FIELD], reason, int(entry_id.partition("-")[0]) / 1000)


def _entries(rows: list[Any]) -> list[Entry]:
    """An entry whose fields are gone (trimmed while pending) has no payload any more and is left out."""
    return [Entry(_text(entry_id), fields[FIELD]) for entry_id, fields in rows if fields and FIELD in fields]
