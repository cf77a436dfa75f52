"""Queries for our own feedback API."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.told import DIGEST
from shared.db.models import FeedbackEventRow


async def stored_digests(session: AsyncSession, dedupe_keys: Collection[str]) -> dict[str, str]:
    """What stored events said, by dedupe key."""
    digest = FeedbackEventRow.evidence[DIGEST].astext
    query = select(FeedbackEventRow.dedupe_key, digest).where(FeedbackEventRow.dedupe_key.in_(list(dedupe_keys)))
    return {row.dedupe_key: row[1] for row in await session.execute(query)}
