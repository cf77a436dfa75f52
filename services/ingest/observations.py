"""What was observed about displays after they were handed over: the `observations` table as evidence.

Written by the settling loop (`settling.py`), read where evidence is gathered. An observation never changes an
experience that was handed over; a replay of rewards over history sees it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.outcomes import SETTLED
from shared.db.models import ObservationRow, OutcomeRow

RETENTION, TYPED_OUT = "retention", "typed_out"
REVERSED_WITHIN_S = 120
REVERSED_SHARE = 0.1
"""Accepted text of which no more than this was left so soon was reversed."""


@dataclass(slots=True)
class Observed:
    """Everything that was observed about one outcome."""

    retention: dict[int, float] = field(default_factory=dict)
    """Seconds after the accept → share of the accepted text that was still there."""
    typed_out: bool | None = None
    settled: str | None = None
    """What the developer wrote in the place of the completion."""

    @property
    def reversed_(self) -> bool | None:
        """Accepted, and soon removed again; None where nothing was seen in time."""
        soon = [share for after_s, share in self.retention.items() if after_s <= REVERSED_WITHIN_S]
        return min(soon) <= REVERSED_SHARE if soon else None


async def observed_of(session: AsyncSession, outcome_ids: Collection[str]) -> dict[str, Observed]:
    """What was observed, by outcome id; none for those about which nothing was."""
    found: dict[str, Observed] = defaultdict(Observed)
    of_outcome = select(
        ObservationRow.outcome_id, ObservationRow.kind, ObservationRow.after_s, ObservationRow.value
    ).where(ObservationRow.outcome_id.in_(list(outcome_ids)))
    for outcome_id, kind, after_s, value in await session.execute(of_outcome):
        assert outcome_id is not None  # it was selected by it
        if kind == RETENTION:
            found[outcome_id].retention[after_s] = value
        elif kind == TYPED_OUT:
            found[outcome_id].typed_out = value > 0
    of_place = (
        select(OutcomeRow.outcome_id, ObservationRow.text)
        .join(ObservationRow, ObservationRow.generation_id == OutcomeRow.generation_id)
        .where(
            OutcomeRow.outcome_id.in_(list(outcome_ids)),
            ObservationRow.kind == SETTLED,
            ObservationRow.outcome_id.is_(None),
        )
    )
    for outcome_id, text in await session.execute(of_place):
        found[outcome_id].settled = text
    return dict(found)


async def store_observations(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> list[float]:
    """The values of those that were not there yet; what is there stays as it is."""
    if not rows:
        return []
    statement = insert(ObservationRow).values(list(rows)).on_conflict_do_nothing()
    return list((await session.scalars(statement.returning(ObservationRow.value))).all())
