"""`Streams` over a real Redis (6.2 or later)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from shared.kit.errors import TemporaryError
from shared.streams.protocol import Entry

FIELD = b"payload"


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
        return await self._read(stream, group, consumer, ">", count=count, block=block_ms or None)

    async def read_own(self, stream: str, group: str, consumer: str, *, count: int) -> list[Entry]:
        entries = await self._read(stream, group, consumer, "0", count=count, block=None)
        return [Entry(entry.entry_id, entry.payload, 2) for entry in entries]

    async def _read(
        self, stream: str, group: str, consumer: str, after: str, *, count: int, block: int | None
    ) -> list[Entry]:
        async with _translated():
            answer = await self._redis.xreadgroup(group, consumer, {stream: after}, count=count, block=block)
        return _entries(answer[0][1]) if answer else []

    async def claim_idle(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        async with _translated():
            answer = await self._redis.xautoclaim(
                stream, group, consumer, min_idle_time=min_idle_ms, start_id="0-0", count=count
            )
        return [Entry(entry.entry_id, entry.payload, 2) for entry in _entries(answer[1])]

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
            pipe.xadd(f"{stream}:dead", {FIELD: entry.payload, b"reason": reason.encode()})
            pipe.xack(stream, group, entry.entry_id)
            pipe.xdel(stream, entry.entry_id)
            await pipe.execute()

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


def _entries(rows: list[Any]) -> list[Entry]:
    """An entry whose fields are gone (trimmed while pending) has no payload any more and is left out."""
    return [Entry(_text(entry_id), fields[FIELD]) for entry_id, fields in rows if fields and FIELD in fields]
