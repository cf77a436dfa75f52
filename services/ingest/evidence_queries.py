"""Gathers the evidence of outcomes from the ledger: the outcome, its events, what was observed later.

In: outcomes. Out: one `Evidence` each. Three queries for any number of outcomes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.displays import part_of
from services.ingest.evidence import Evidence, similarity, visible_chars
from services.ingest.observations import Observed, observed_of
from services.ingest.outcomes import SETTLED, Verdict
from services.ingest.repository import Repository
from services.ingest.settled import typed_out
from shared.db.models import FeedbackEventRow, OutcomeRow

TIMERS = frozenset({"verdict"})
"""Kinds of events whose rejects a timer sends: Continue's."""
PERSONS = frozenset({"feedback"})
"""Kinds of events whose rejects a person sends. Tabby's `dismiss` is neither: any key that is typed sends it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one event says, apart from the verdict that the outcome has."""

    kind: str
    accepted: bool | None
    rating: float | None = None
    edited: float | None = None
    """Similarity of the final text to the suggestion, where the client tells that."""
    final_text: str | None = None
    """The final text itself, where the client tells that."""


@dataclass(slots=True)
class Known:
    """Everything about one outcome besides its own row."""

    said: list[Said] = field(default_factory=list)
    retention: dict[int, float] = field(default_factory=dict)
    seen: dict[str, bool] = field(default_factory=dict)
    """`typed_out`, `reversed`, `settled`: what was observed of them."""
    settled: str | None = None
    """What the developer wrote there in the end."""
    shown_again: bool = False

    def take(self, observed: Observed) -> None:
        """What later requests showed. The text that was found just now goes before one that was found earlier."""
        self.retention = observed.retention
        self.settled = self.settled or observed.settled
        for name, value in (("typed_out", observed.typed_out), ("reversed", observed.reversed_)):
            if value is not None:
                self.seen[name] = value


async def evidence_of(
    session: AsyncSession, outcomes: Sequence[OutcomeRow], settled: Mapping[str, str] | None = None
) -> dict[str, Evidence]:
    """The evidence of each outcome, by id. `settled`: text that was found just now, by outcome id."""
    ids = [row.outcome_id for row in outcomes]
    known = {outcome_id: Known(settled=(settled or {}).get(outcome_id)) for outcome_id in ids}
    if not ids:
        return {}
    for outcome_id, said in (await _said(session, ids)).items():
        known[outcome_id].said = said
    for outcome_id, observed in (await observed_of(session, ids)).items():
        known[outcome_id].take(observed)
    for outcome_id in await Repository(session).shown_again(ids):
        known[outcome_id].shown_again = True
    return {row.outcome_id: gather(row, known[row.outcome_id]) for row in outcomes}


def gather(row: OutcomeRow, known: Known) -> Evidence:
    """One outcome's evidence. Pure."""
    verdict: Verdict = "shown" if row.state == SETTLED else next(one for one in get_args(Verdict) if one == row.state)
    settled = known.settled or (row.reference_text if row.reference_kind == "settled" else None)
    typed = typed_out(settled, row.shown_text) if settled and verdict != "accepted" else None
    return Evidence(
        verdict,
        part=part_of(row.accepted_part),
        explicit=_explicit(known.said),
        shown_chars=visible_chars(row.shown_text),
        retention=known.retention,
        reversed_=known.seen.get("reversed"),
        typed_out=known.seen.get("typed_out", typed),
        settled=known.seen.get("settled", settled is not None),
        edited=_last(_edited(said, row.shown_text) for said in known.said),
        rating=_last(said.rating for said in known.said),
        superseded=known.shown_again,
    )


def _explicit(said: Iterable[Said]) -> bool | None:
    kinds = {one.kind for one in said if one.accepted is False}
    if kinds & PERSONS:
        return True
    return False if kinds & TIMERS else None


def _edited(said: Said, shown_text: str) -> float | None:
    return said.edited if said.final_text is None else similarity(said.final_text, shown_text)


def _last(values: Iterable[float | None]) -> float | None:
    return next((value for value in reversed([*values]) if value is not None), None)


async def _said(session: AsyncSession, outcome_ids: Collection[str]) -> dict[str, list[Said]]:
    """What the events of each outcome say, in the order in which they came."""
    query = (
        select(FeedbackEventRow.outcome_id, FeedbackEventRow.kind, FeedbackEventRow.accepted, FeedbackEventRow.evidence)
        .where(FeedbackEventRow.outcome_id.in_(list(outcome_ids)))
        .order_by(FeedbackEventRow.event_id)
    )
    found: dict[str, list[Said]] = defaultdict(list)
    for outcome_id, kind, accepted, evidence in await session.execute(query):
        rating, edited = _figure(evidence, "rating", -1.0), _figure(evidence, "edited", 0.0)
        final = evidence.get("final_text")
        found[outcome_id].append(Said(kind, accepted, rating, edited, final if isinstance(final, str) else None))
    return found


def _figure(evidence: Mapping[str, Any], name: str, lowest: float) -> float | None:
    """A figure that a client told; None where it is none."""
    value = evidence.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= 1.0:
        return None
    return float(value)
