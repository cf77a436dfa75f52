"""`GET /v1/acceptance` and `GET /v1/joins`: figures over a period, out of the ledger."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from services.ingest.acceptance import (
    DEFAULT_SINCE,
    DIMENSIONS,
    Acceptance,
    Bucket,
    Wish,
    cells,
    dimensions_of,
    header,
    period,
)
from services.ingest.acceptance_queries import read_acceptance
from services.ingest.joins import Joins, read_joins
from services.ingest.routes import ERRORS, PROJECT_ID, ApiKey, Authorization, Ingest, ProjectId
from services.ingest.worker import is_temporary
from shared.keys import Key
from shared.web.errors import ApiError

ACCEPTANCE, JOINS = "/v1/acceptance", "/v1/joins"
QUERY_CANCELED = "57014"
TIME_TO_ANSWER_S = 2.0
"""More than the query's own timeout, so that PostgreSQL breaks it off and says so."""

Since = Annotated[str, Query(description="From when: `2026-11-01`, `2026-11-01T12:00:00Z`, or `12h`, `7d` ago.")]
Until = Annotated[str | None, Query(description="Until when; now, if left out.")]
GroupBy = Annotated[str, Query(description=f"Some of {', '.join(DIMENSIONS)}, separated by commas; empty: totals.")]
Project = Annotated[str | None, Query(description="Only this project.", pattern=f"^{PROJECT_ID.pattern}$")]
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


def make_figures_router(ingest: Ingest) -> APIRouter:
    """Both routes."""
    router = APIRouter(responses=ERRORS)

    @router.get(ACCEPTANCE, response_model=Acceptance, responses=CSV)
    async def acceptance(
        since: Since = DEFAULT_SINCE,
        until: Until = None,
        group_by: GroupBy = "project",
        bucket: Bucket | None = None,
        project: Project = None,
        accept: Annotated[str | None, Header(include_in_schema=False)] = None,
        authorization: Authorization = None,
        api_key: ApiKey = None,
        x_project_id: ProjectId = None,
    ) -> Any:
        """How much of what was suggested was accepted. `Accept: text/csv` gives a table.

        A key with the scope `admin` reads every project that it may name; one with `feedback` alone reads itself.
        """
        key = ingest.keys.authenticate(authorization, api_key, "admin", "feedback")
        wish = _wish(ingest, key, (group_by, bucket), (since, until), project or x_project_id)
        async with _reading(ingest) as session:
            found = await read_acceptance(session, wish, ingest.settings, ingest.keys.names)
        return _csv(found) if "text/csv" in (accept or "") else found

    @router.get(JOINS)
    async def joins(
        since: Since = "24h",
        until: Until = None,
        project: Project = None,
        authorization: Authorization = None,
        api_key: ApiKey = None,
        x_project_id: ProjectId = None,
    ) -> Joins:
        """What the joiner made of the events that arrived: joined, ambiguous, unmatched and why, pending and how old.

        Needs the scope `admin`.
        """
        key = ingest.keys.authenticate(authorization, api_key, "admin")
        now = ingest.clock()
        begin, end = _period(ingest, since, until)
        async with _reading(ingest) as session:
            return await read_joins(session, begin, end, now, ingest.settings, _project(key, project or x_project_id))

    return router


def _wish(
    ingest: Ingest,
    key: Key,
    grouping: tuple[str, Bucket | None],
    times: tuple[str, str | None],
    project: str | None,
) -> Wish:
    """What the request asks for, as far as its key may."""
    group_by, bucket = grouping
    try:
        dimensions = dimensions_of(group_by, bucket)
    except ValueError as error:
        raise _invalid("group_by", f"group_by: {error}") from None
    since, until = _period(ingest, *times)
    own = None if "admin" in key.scopes else key.key_id
    return Wish(dimensions, since, until, bucket, project_id=_project(key, project), key_id=own)


def _project(key: Key, requested: str | None) -> str | None:
    """None: all projects. Raises 403 where the key is bound to another, 422 where it cannot be a project."""
    if requested is not None and not PROJECT_ID.fullmatch(requested):
        raise _invalid("project", "project: 1 to 64 letters, digits, `.`, `_`, `-`")
    return key.project(requested) if requested or key.project_id else None


def _period(ingest: Ingest, since: str, until: str | None) -> Any:
    try:
        return period(since, until, ingest.clock())
    except ValueError as error:
        raise _invalid(str(error).partition(":")[0], str(error)) from None


def _invalid(param: str, message: str) -> ApiError:
    return ApiError(422, "invalid_query", message, param=param)


@asynccontextmanager
async def _reading(ingest: Ingest) -> AsyncIterator[AsyncSession]:
    """Raises 503 while the ledger is away, and where it takes too long."""
    limit_s = ingest.settings.figures_timeout_s
    try:
        async with asyncio.timeout(limit_s + TIME_TO_ANSWER_S), ingest.sessions() as session:
            yield session
    except Exception as error:
        if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == QUERY_CANCELED:
            raise _away("query_too_slow", f"it takes more than {limit_s:g} s: ask for a shorter period") from None
        if not is_temporary(error):
            raise
        raise _away("ledger_unavailable", "the ledger cannot be read now") from None


def _away(code: str, message: str) -> ApiError:
    return ApiError(503, code, message, type_="server_error", headers={"Retry-After": "2"})


def _csv(found: Acceptance) -> Response:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(header(found.group_by))
    for group in found.groups:
        writer.writerow([_harmless(cell) for cell in cells(group, found.group_by)])
    return Response(file.getvalue(), media_type="text/csv")


def _harmless(cell: object) -> object:
    """A text that a spreadsheet would take for a formula, as text: names are whatever somebody typed."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in {"=", "+", "-", "@", "\t", "\r"} else cell
