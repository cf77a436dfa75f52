"""Keeps the parts of `generations`: one per day, made some days ahead, dropped whole when nobody may keep it any more.

In: the time. Out: tables `generations_YYYYMMDD`. Whatever has no part of its day goes to `generations_other`: nothing
is ever refused. One process at a time does it, and none waits for a lock longer than `LOCK_TIMEOUT`: next time, then.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy import select, text, union
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from shared.contracts.ids import first_id
from shared.db.models import ObservationRow, OutcomeRow
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()

DAY = timedelta(days=1)
DAYS_AHEAD = 7
LOCK = 0x7AC
LOCK_TIMEOUT = "2s"
_LATER = ("55P03", "40P01", "23503", "23514", "42P07")
"""SQLSTATEs of what may work another time: the lock is taken, an outcome has just come, rows are in the way."""


@dataclass(frozen=True, slots=True)
class Part:
    """One day's table."""

    day: datetime
    """Its begin, UTC."""

    @property
    def table(self) -> str:
        return f"generations_{self.day:%Y%m%d}"

    @property
    def end(self) -> datetime:
        return self.day + DAY

    @property
    def ids(self) -> tuple[str, str]:
        """Its ids are at least the first and before the second."""
        return first_id(self.day), first_id(self.end)

    @property
    def creation(self) -> str:
        """The statement that makes it."""
        first, end = self.ids
        return f"CREATE TABLE {self.table} PARTITION OF generations FOR VALUES FROM ('{first}') TO ('{end}')"


class Partitions:
    """One step makes the parts that are missing."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], clock: Clock = utc_now) -> None:
        self._sessions = sessions
        self._clock = clock

    async def step(self) -> int:
        """How many were made; 0 also where another process is at it."""
        today = _begin(self._clock())
        async with self._sessions() as session:
            there = {part.day for part in await parts(session)}
        wanted = [Part(today + number * DAY) for number in range(DAYS_AHEAD + 1)]
        return sum([await alone(self._sessions, part.creation) for part in wanted if part.day not in there])


async def alone(sessions: async_sessionmaker[AsyncSession], *statements: str) -> bool:
    """Whether the statements were carried out: not where another process has the lock, or somebody is in the way."""
    try:
        async with sessions.begin() as session:
            if not (await session.scalars(text(f"SELECT pg_try_advisory_xact_lock({LOCK})"))).one():
                return False
            await session.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
            for statement in statements:
                await session.execute(text(statement))
    except DBAPIError as error:
        sqlstate = getattr(error.orig, "sqlstate", None)
        if sqlstate not in _LATER:
            raise
        log.warning("partition later", sqlstate=sqlstate)
        return False
    return True


async def parts(session: AsyncSession) -> list[Part]:
    """Those that are there, the oldest first."""
    query = text(
        "SELECT right(c.relname, 8) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'generations'::regclass AND c.relname ~ '^generations_[0-9]{8}$' ORDER BY 1"
    )
    names = (await session.scalars(query)).all()
    return [Part(datetime.strptime(name, "%Y%m%d").replace(tzinfo=UTC)) for name in names]


async def last_recorded(session: AsyncSession, part: Part) -> datetime | None:
    """When the last of its generations was recorded; None where it has none."""
    last: datetime | None = (await session.scalars(text(f"SELECT max(recorded_at) FROM {part.table}"))).one()
    return last


async def referred_to(session: AsyncSession, part: Part, limit: int) -> list[str]:
    """Some of its generations that something else was made of."""
    first, end = part.ids
    ids = [
        select(column).where(column >= first, column < end).limit(limit).subquery()
        for column in (OutcomeRow.generation_id, ObservationRow.generation_id)
    ]
    found = union(*(select(one.c.generation_id) for one in ids)).limit(limit)
    return list((await session.scalars(found)).all())


async def drop(sessions: async_sessionmaker[AsyncSession], part: Part) -> int | None:
    """The rows that went with it; None where it is not gone yet."""
    async with sessions() as session:
        rows = int((await session.scalars(text(f"SELECT count(*) FROM {part.table}"))).one())
    statements = (f"ALTER TABLE generations DETACH PARTITION {part.table}", f"DROP TABLE {part.table}")
    return rows if await alone(sessions, *statements) else None


def _begin(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
