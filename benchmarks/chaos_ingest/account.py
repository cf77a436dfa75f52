"""Counts: what was promised beside what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.chaos_ingest.load import Promises

EVENTS = "SELECT client_completion_id, accepted FROM feedback_events"
GENERATIONS = "SELECT generation_id FROM generations"
OUTCOMES = "SELECT client_completion_id, state = 'accepted', resolved_at IS NOT NULL FROM outcomes"
EXPERIENCE = "SELECT o.client_completion_id FROM experience e JOIN outcomes o USING (outcome_id)"
HANDED_OVER = "SELECT experience_id FROM experience WHERE withheld IS NULL"
EFFECTS = "SELECT experience_id FROM chaos_effects"


@dataclass
class Account:
    """By kind, what is missing and what is there more than once."""

    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    """There once, but not as it was said."""
    there: Counter[str] = field(default_factory=Counter)

    def compare(self, kind: str, promised: Iterable[Any], found: Iterable[Any]) -> None:
        """Everything promised must be there exactly once; nothing may be there twice, promised or not."""
        counts = Counter(found)
        self.lost[kind] += sum(one not in counts for one in set(promised))
        self.duplicated[kind] += sum(count - 1 for count in counts.values())
        self.there[kind] += len(counts)

    @property
    def clean(self) -> bool:
        """Nothing lost, nothing duplicated, nothing wrong, and something was done at all."""
        nothing = self.lost.total() == self.duplicated.total() == self.wrong.total() == 0
        return nothing and all(self.there[kind] > 0 for kind in self.there)


def count(database_url: str, promises: Promises) -> Account:
    """Look into the ledger and the stand-in trainer's effects."""
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        rows = {
            query: connection.execute(query.encode()).fetchall()
            for query in (EVENTS, GENERATIONS, OUTCOMES, EXPERIENCE, HANDED_OVER, EFFECTS)
        }
    return reckon(promises, rows)


def reckon(promises: Promises, rows: dict[str, list[tuple[Any, ...]]]) -> Account:
    """Pure: from the rows of each query."""
    account = Account()
    account.compare("generations", promises.generations, _first(rows[GENERATIONS]))
    account.compare("events", promises.facts, [tuple(row) for row in rows[EVENTS]])
    account.compare("outcomes", promises.displays, _first(rows[OUTCOMES]))
    account.compare("resolved", promises.displays, [name for name, _, resolved in rows[OUTCOMES] if resolved])
    account.compare("experience", promises.displays, _first(rows[EXPERIENCE]))
    account.compare("effects", _first(rows[HANDED_OVER]), _first(rows[EFFECTS]))
    known = promises.displays
    account.wrong["verdict"] += sum(known.get(name, accepted) != accepted for name, accepted, _ in rows[OUTCOMES])
    account.wrong["effects of nothing"] += len(set(_first(rows[EFFECTS])) - set(_first(rows[HANDED_OVER])))
    return account


def _first(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows]
