"""Sends again what Redis lost: messages that were sent, and are neither dealt with nor in their stream any more.

In: outbox rows with `sent_at`, the stream and its dead letters, trained_experience. Out: `sent_at` taken back, so that
the relay sends them again. Looked for once in every life of Redis; the outbox keeps sent messages for `outbox_keep_s`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.metrics import IngestMetrics
from services.ingest.outbox_queries import hold_sending, take_back_lost
from shared.contracts.names import STREAM_EXPERIENCE
from shared.streams import Streams, dead_stream

log = structlog.get_logger()

PAGE = 500


class Resending:
    """One step looks whether another life of Redis began, and then what it does not know."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], streams: Streams, metrics: IngestMetrics) -> None:
        self._sessions = sessions
        self._streams = streams
        self._metrics = metrics
        self._instance: str | None = None
        """The life of Redis in which everything that was sent is in the stream, or dealt with."""

    async def step(self) -> int:
        """How many messages will be sent again."""
        if await self._streams.instance() == self._instance:
            return 0
        async with self._sessions.begin() as session:
            await hold_sending(session)
            instance = await self._streams.instance()
            there = {message_id async for message_id in self._message_ids()}
            # the stream first: what leaves it meanwhile is in trained_experience before, or among the dead after
            lost = await take_back_lost(session, STREAM_EXPERIENCE, there)
        self._instance = instance
        self._metrics.resent.inc(lost)
        if lost:
            log.warning("messages sent again that redis lost", count=lost)
        return lost

    async def _message_ids(self) -> AsyncIterator[str]:
        for stream in (STREAM_EXPERIENCE, dead_stream(STREAM_EXPERIENCE)):
            after: str | None = None
            while page := await self._streams.entries(stream, after=after, count=PAGE):
                for entry in page:
                    if (message_id := _message_id(entry.payload)) is not None:
                        yield message_id
                after = page[-1].entry_id


def _message_id(payload: bytes) -> str | None:
    """None: it is not one of ours, or nobody can tell."""
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    found = message.get("experience_id") if isinstance(message, dict) else None
    return found if isinstance(found, str) and "\x00" not in found else None
