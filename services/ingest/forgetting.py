"""Deletes everything that is kept of one key, while the stack runs.

In: a key's id. Out: nothing of its code anywhere in the ledger or in the streams, and a row of `forgotten_keys` that
tells what went and which policy versions had learned from it. May be stopped at any time and run again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest import erasing_queries as queries
from services.ingest.erasing_queries import Erased
from shared.contracts.names import GROUP_RECORDER, GROUP_TRAINER, STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.db.models import ForgottenKeyRow
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import TemporaryError
from shared.streams import Entry, Streams, dead_stream

BATCH = 500
PAGE = 200
BUSY_S = 0.1
LONGEST_WAIT_S = 30.0
GROUPS = {STREAM_GENERATIONS: GROUP_RECORDER, STREAM_EXPERIENCE: GROUP_TRAINER}


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a key."""

    rows: dict[str, int]
    """By table or stream."""
    versions: list[int]
    """Policy versions that learned from it, those that an earlier run found included."""

    @property
    def total(self) -> int:
        """Of rows and entries."""
        return sum(self.rows.values())


class Forgetting:
    """One key's data in ledger and streams."""

    def __init__(
        self, key_id: str, sessions: async_sessionmaker[AsyncSession], streams: Streams, clock: Clock = utc_now
    ) -> None:
        self._key_id = key_id
        self._sessions = sessions
        self._streams = streams
        self._clock = clock

    async def look(self) -> Found:
        """Counts everything; changes nothing."""
        async with self._sessions() as session:
            rows = await queries.counts_of_key(session, self._key_id)
            versions = await self._versions(session)
        for stream in GROUPS:
            rows[stream] = len([entry async for entry in self._entries(stream)])
            rows[dead_stream(stream)] = len([letter async for letter in self._dead(stream)])
        return Found(rows, versions)

    async def forget(self) -> Found:
        """Delete it all, batch by batch; what went. First it is written down which versions learned from it."""
        erased: Erased = Counter()
        await self._note(erased)
        for stream in GROUPS:
            erased[stream] += await self._drop_entries(stream)
            erased[dead_stream(stream)] += await self._drop_dead(stream)
        erased += await self._generations()
        while some := await self._experience_batch():
            erased += some
        erased += await self._loose_events()
        versions = await self._note(erased)
        return Found(dict(erased), versions)

    async def _generations(self) -> Erased:
        """All generations and what was made of them. Waits for those that a loop of ingest is working on."""
        erased: Erased = Counter()
        waited_s = 0.0
        while (some := await self._generation_batch()) is not None:
            erased += some
            waited_s = 0.0 if some.total() else waited_s + BUSY_S
            if waited_s > LONGEST_WAIT_S:
                raise TemporaryError("rows of the key have been locked for too long")
            await asyncio.sleep(0 if some.total() else BUSY_S)
        return erased

    async def _generation_batch(self) -> Erased | None:
        """One transaction; what it deleted. None where nothing is left."""
        async with self._sessions.begin() as session:
            ids = await queries.generations_of_key(session, self._key_id, BATCH)
            if not ids:
                return None
            await self._note_within(session, Counter())  # a round may have committed meanwhile
            return await queries.erase(session, ids, experience=True)

    async def _experience_batch(self) -> Erased | None:
        async with self._sessions.begin() as session:
            erased = await queries.erase_experience(session, self._key_id, BATCH)
        return erased if erased.total() else None

    async def _loose_events(self) -> Erased:
        """Events that belong to no generation; one pass over the table."""
        erased: Erased = Counter()
        after_id = 0
        while True:
            async with self._sessions.begin() as session:
                ids = await queries.events_of_key(session, self._key_id, after_id, BATCH)
                if not ids:
                    return erased
                erased += await queries.erase_events(session, ids)
            after_id = ids[-1]

    # --- streams ---------------------------------------------------------------------------------------------------

    async def _entries(self, stream: str) -> AsyncIterator[Entry]:
        after: str | None = None
        while page := await self._streams.entries(stream, after=after, count=PAGE):
            for entry in page:
                if _key_of(entry.payload) == self._key_id:
                    yield entry
            after = page[-1].entry_id

    async def _dead(self, stream: str) -> AsyncIterator[str]:
        after: str | None = None
        while page := await self._streams.dead_letters(stream, after=after, count=PAGE):
            for letter in page:
                if _key_of(letter.payload) == self._key_id:
                    yield letter.entry_id
            after = page[-1].entry_id

    async def _drop_entries(self, stream: str) -> int:
        ids = [entry.entry_id async for entry in self._entries(stream)]
        await self._streams.ensure_group(stream, GROUPS[stream])
        await self._streams.ack(stream, GROUPS[stream], ids)
        return len(ids)

    async def _drop_dead(self, stream: str) -> int:
        ids = [entry_id async for entry_id in self._dead(stream)]
        return sum([await self._streams.drop_dead(stream, entry_id) for entry_id in ids])

    # --- what stays ------------------------------------------------------------------------------------------------

    async def _versions(self, session: AsyncSession) -> list[int]:
        noted = await session.scalar(select(ForgottenKeyRow.versions).where(ForgottenKeyRow.key_id == self._key_id))
        return sorted({*(noted or ()), *await queries.versions_trained_on(session, self._key_id)})

    async def _note(self, erased: Erased) -> list[int]:
        async with self._sessions.begin() as session:
            return await self._note_within(session, erased)

    async def _note_within(self, session: AsyncSession, erased: Erased) -> list[int]:
        """Write down what an interrupted run would not be able to tell any more."""
        versions = await self._versions(session)
        now: datetime = self._clock()
        rows = sum(erased.values())
        statement = insert(ForgottenKeyRow).values(
            key_id=self._key_id, first_at=now, last_at=now, rows=rows, versions=versions
        )
        fresh = {"last_at": now, "rows": ForgottenKeyRow.rows + rows, "versions": versions}
        await session.execute(statement.on_conflict_do_update(index_elements=["key_id"], set_=fresh))
        return versions


def _key_of(payload: bytes) -> str | None:
    """Whose a message is; None where it is none."""
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return message.get("key_id") if isinstance(message, dict) else None
