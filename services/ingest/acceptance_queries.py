"""Acceptance out of the ledger: one statement for any grouping.

It goes by the time of the request, which has an index that holds everything that is counted of generations, so that
the rows with the code are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.acceptance import Acceptance, Counts, Dimension, Wish, counts_of, figures, pseudonym
from services.ingest.figures_settings import FiguresSettings

_CLOCKS_APART = timedelta(hours=1)
"""No event comes so long before its generation, whatever the clocks say: it lets the outcomes' index be used."""

_VALUES: Final[Mapping[Dimension, str]] = {
    "project": "project_id",
    "developer": "key_id",
    "language": "language",
    "version": "policy_version",
    "client": "protocol",
    "time": "date_trunc(:bucket, created_at, 'UTC')",
}

_STATEMENT = """
WITH seen AS (
    SELECT g.request_id, g.created_at, g.key_id, g.policy_version, g.protocol,
        coalesce(o.project_id, g.project_id) AS project_id, coalesce(o.language, 'unknown') AS language,
        o.outcome_id, o.client_completion_id, o.state, o.accepted_part, o.reward,
        CASE WHEN o.state = 'accepted' THEN char_length(o.shown_text) ELSE 0 END AS chars
    FROM generations g
    LEFT JOIN outcomes o
        ON o.generation_id = g.generation_id AND o.state <> 'settled' AND o.first_event_at >= :told_since
    WHERE g.created_at >= :since AND g.created_at < :until {key}
), asked AS (
    SELECT *, (:all_named OR project_id = ANY(:named)) AS may_be_named FROM seen WHERE {project}
),
requests AS (
    SELECT {values}, bool_and(may_be_named) AS may_be_named, 1 AS requested,
        bool_or(outcome_id IS NOT NULL)::int AS requests_shown,
        0 AS shown, 0 AS accepted, 0 AS partially_accepted, 0 AS rejected, 0 AS rewards, 0 AS rewarded, 0 AS chars
    FROM asked WHERE {count_requests} GROUP BY request_id
), displays AS (
    SELECT {values}, bool_and(may_be_named) AS may_be_named, 0 AS requested,
        0 AS requests_shown, 1 AS shown,
        bool_or(state = 'accepted' AND accepted_part IS NULL) AS whole,
        bool_or(state = 'accepted') AS taken,
        bool_or(state = 'rejected') AS refused,
        coalesce(sum(reward), 0) AS rewards, count(reward) AS rewarded, sum(chars) AS chars
    FROM asked WHERE outcome_id IS NOT NULL GROUP BY key_id, client_completion_id
), counted AS (
    SELECT * FROM requests
    UNION ALL
    SELECT {names}, may_be_named, requested, requests_shown, shown, whole::int, (taken AND NOT whole)::int,
        (refused AND NOT taken)::int, rewards, rewarded, chars
    FROM displays
)
SELECT {names}, bool_and(may_be_named) AS may_be_named, coalesce(sum(requested), 0) AS requested,
    coalesce(sum(requests_shown), 0) AS requests_shown, coalesce(sum(shown), 0) AS shown,
    coalesce(sum(accepted), 0) AS accepted, coalesce(sum(partially_accepted), 0) AS partially_accepted,
    coalesce(sum(rejected), 0) AS rejected, coalesce(sum(rewards), 0) AS rewards,
    coalesce(sum(rewarded), 0) AS rewarded, coalesce(sum(chars), 0) AS accepted_chars
FROM counted GROUP BY {names} ORDER BY {names} LIMIT :at_most
"""


async def read_acceptance(
    session: AsyncSession, wish: Wish, settings: FiguresSettings, names: Callable[[], Mapping[str, str]]
) -> Acceptance:
    """The figures that are wished for. `names`: the developers' names by key id, asked for where one is shown.

    Raises SQLAlchemy's `OperationalError` (SQLSTATE 57014) where it takes too long.
    """
    await session.execute(text(f"SET LOCAL statement_timeout = {int(settings.figures_timeout_s * 1000)}"))
    result = await session.execute(statement(wish), parameters(wish, settings))
    rows = result.mappings().all()
    shown = rows[: settings.figures_max_groups]
    known = names() if "developer" in wish.group_by else {}
    return Acceptance(
        since=wish.since,
        until=wish.until,
        group_by=list(wish.group_by),
        bucket=_bucket(wish),
        truncated=len(rows) > len(shown),
        groups=[figures(_group(wish, row, known), _counts(row)) for row in shown],
    )


def statement(wish: Wish) -> TextClause:
    """The query. Its parts are this module's own: nothing that a client sends becomes SQL."""
    grouped = [(f'"{name}"', _VALUES[name]) for name in wish.group_by]
    listed = ", ".join(name for name, _ in grouped)
    return text(
        _STATEMENT.format(
            values=", ".join(f"min({value}) AS {name}" for name, value in grouped) or "1 AS everything",
            names=listed or "everything",
            key="AND g.key_id = :key_id" if wish.key_id else "",
            project="project_id = :project_id" if wish.project_id else "true",
            count_requests="false" if "language" in wish.group_by else "true",
        )
    )


def parameters(wish: Wish, settings: FiguresSettings) -> dict[str, Any]:
    """The values of the query's parameters."""
    optional = {"key_id": wish.key_id, "project_id": wish.project_id, "bucket": _bucket(wish)}
    return {
        "since": wish.since,
        "until": wish.until,
        "told_since": wish.since - _CLOCKS_APART,
        "named": sorted(settings.named_projects),
        "all_named": settings.names_everywhere,
        "at_most": settings.figures_max_groups + 1,
    } | {name: value for name, value in optional.items() if value is not None}


def _bucket(wish: Wish) -> Any:
    return (wish.bucket or "day") if "time" in wish.group_by else None


def _group(wish: Wish, row: Mapping[Any, Any], names: Mapping[str, str]) -> dict[str, str | int]:
    group: dict[str, str | int] = {}
    for name in wish.group_by:
        value = row[name]
        if name == "developer":
            value = (names.get(value) if row["may_be_named"] else None) or pseudonym(value)
        group[name] = value.isoformat().replace("+00:00", "Z") if name == "time" else value
    return group


def _counts(row: Mapping[Any, Any]) -> Counts:
    return counts_of({name: row[name] if name == "rewards" else int(row[name]) for name in Counts.__slots__})
