"""Stands for the trainer: takes experience from the stream in the trainer's group, each id once, as the trainer does.

Commit first, acknowledge after. Now and then it "dies" in between, so that what is committed is delivered again.
"""

from __future__ import annotations

import asyncio
import random

import psycopg

from shared.contracts.experience import Experience
from shared.contracts.names import GROUP_TRAINER, STREAM_EXPERIENCE
from shared.kit.errors import TemporaryError
from shared.streams import Entry, RedisStreams

ROUND = "chaos"
EFFECTS = "CREATE TABLE chaos_effects (experience_id text NOT NULL)"
"""What training would have changed; nothing here keeps it from being changed twice."""
FIRST_ROUND = """
INSERT INTO training_rounds (round_id, parent_version, started_at, committed_at, minibatches, trained, stats)
VALUES (%s, 0, now(), now(), 0, 0, '{}')"""
NEW = """
INSERT INTO trained_experience (experience_id, round_id, disposition)
SELECT id, %s, 'trained' FROM unnest(%s::text[]) id
ON CONFLICT DO NOTHING RETURNING experience_id"""
DIES = 0.1


def prepare(database_url: str) -> None:
    """Once per run."""
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute(EFFECTS)
        connection.execute(FIRST_ROUND, [ROUND])


class Consumer:
    """One consumer of the experience stream."""

    def __init__(self, database_url: str, redis_url: str, seed: int) -> None:
        self._database_url = database_url.replace("+psycopg", "")
        self._streams = RedisStreams.from_url(redis_url)
        self._random = random.Random(seed)
        self.delivered = 0

    async def work(self) -> None:
        """Until cancelled, through outages of both servers."""
        try:
            while True:
                try:
                    await self._step()
                except (TemporaryError, psycopg.OperationalError):
                    await asyncio.sleep(0.2)
        finally:
            await self._streams.close()

    async def _step(self) -> None:
        names = (STREAM_EXPERIENCE, GROUP_TRAINER, "chaos")
        await self._streams.ensure_group(STREAM_EXPERIENCE, GROUP_TRAINER)
        entries = await self._streams.read_own(*names, count=100)
        entries = entries or await self._streams.read(*names, count=100, block_ms=200)
        if entries:
            await self._train(entries)
            if self._random.random() > DIES:
                await self._streams.ack(STREAM_EXPERIENCE, GROUP_TRAINER, [entry.entry_id for entry in entries])

    async def _train(self, entries: list[Entry]) -> None:
        self.delivered += len(entries)
        ids = [Experience.model_validate_json(entry.payload).experience_id for entry in entries]
        async with await psycopg.AsyncConnection.connect(self._database_url, connect_timeout=2) as connection:
            cursor = await connection.execute(NEW, [ROUND, ids])
            new = [row[0] for row in await cursor.fetchall()]
            await connection.execute("INSERT INTO chaos_effects SELECT unnest(%s::text[])", [new])
