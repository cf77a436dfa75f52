"""The HTTP face: the feedback routes and the figures. Each answers 2xx only once the ledger has committed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from starlette.requests import ClientDisconnect

from services.ingest.metrics import IngestMetrics
from services.ingest.protocols import continue_, rlinf, tabby
from services.ingest.protocols.common import Caller, FeedbackEvent, read_object
from services.ingest.repository import Repository
from services.ingest.settings import IngestSettings
from services.ingest.stats import Stats, read_stats
from services.ingest.worker import is_temporary
from shared.keys import KeyRing, Scope
from shared.kit.clock import Clock
from shared.web.errors import ApiError

log = structlog.get_logger()

SUBMIT = "/api/training/submit"
CONTINUE = "/v1/events/continue"
TABBY = "/v1/events/tabby"
FEEDBACK_ROUTES = frozenset({SUBMIT, CONTINUE, TABBY})
PROJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Authorization = Annotated[str | None, Header()]
ApiKey = Annotated[str | None, Header()]
ProjectId = Annotated[str | None, Header()]


class ErrorDetail(BaseModel):
    """What went wrong and what to do about it. Never contains code."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """The one error shape; see docs/errors.md."""

    error: ErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (400, 401, 403, 413, 422, 503)}


@dataclass(frozen=True)
class Ingest:
    """What the routes work with."""

    settings: IngestSettings
    keys: KeyRing
    sessions: async_sessionmaker[AsyncSession]
    metrics: IngestMetrics
    clock: Clock

    def caller(self, authorization: str | None, api_key: str | None, project: str | None, *or_scope: Scope) -> Caller:
        """Who calls and for which project; `feedback` or one of the scopes is needed. Raises 401, 403 or 422."""
        key = self.keys.authenticate(authorization, api_key, "feedback", *or_scope)
        if project is not None and not PROJECT_ID.fullmatch(project):
            raise ApiError(
                422, "invalid_project", "X-Project-ID: 1 to 64 letters, digits, `.`, `_`, `-`", param="X-Project-ID"
            )
        return Caller(key.key_id, key.project(project), self.settings.fim_template)

    async def store(self, event: FeedbackEvent) -> None:
        """Returns once the event is committed. Raises 503 while the ledger is away."""
        began_s = time.perf_counter()
        async with self._ledger() as session, session.begin():
            new = await Repository(session).add_event(event, self.clock())
        self.metrics.commit_s.observe(time.perf_counter() - began_s)
        if new:
            self.metrics.events.labels(event.source, event.verdict).inc()
        else:
            self.metrics.repeated.labels(event.source).inc()

    async def stats(self, project_id: str) -> Stats:
        """The project's figures. Raises 503 while the ledger is away."""
        async with self._ledger() as session:
            return await read_stats(session, project_id)

    @asynccontextmanager
    async def _ledger(self) -> AsyncIterator[AsyncSession]:
        try:
            async with asyncio.timeout(self.settings.ingest_commit_timeout_s), self.sessions() as session:
                yield session
        except DataError:
            raise ApiError(422, "invalid_body", "the ledger cannot hold one of the values") from None
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("ledger away", error=type(error).__name__)
            raise ApiError(
                503,
                "ledger_unavailable",
                "the event was not stored; send it again later",
                type_="server_error",
                headers={"Retry-After": "2"},
            ) from None


def make_router(ingest: Ingest) -> APIRouter:
    """All routes of ingest but the probes."""
    router = APIRouter(responses=ERRORS)

    @router.post(SUBMIT, openapi_extra=_body(rlinf.RlinfEvent))
    async def submit(
        request: Request,
        authorization: Authorization = None,
        api_key: ApiKey = None,
        x_project_id: ProjectId = None,
    ) -> rlinf.RlinfAnswer:
        """One accept or reject from RLinf's modified Continue. 200: it is durable."""
        caller = ingest.caller(authorization, api_key, x_project_id)
        event = rlinf.parse(await _object(request), caller)
        await ingest.store(event)
        return rlinf.RlinfAnswer(message="stored")

    @router.post(CONTINUE, status_code=204, response_class=Response, openapi_extra=_body(continue_.ContinueEvent))
    async def continue_event(
        request: Request,
        authorization: Authorization = None,
        api_key: ApiKey = None,
        x_project_id: ProjectId = None,
    ) -> None:
        """One event of stock Continue's dev data. 204: it is durable, or of a kind that says nothing (ignored)."""
        caller = ingest.caller(authorization, api_key, x_project_id)
        event = continue_.parse(await _object(request), caller)
        if isinstance(event, continue_.Ignored):
            ingest.metrics.ignored.labels(event).inc()
            return
        await ingest.store(event)

    @router.post(
        TABBY,
        response_class=Response,
        responses={204: {"description": "An event of another type: taken and ignored"}},
        openapi_extra=_body(tabby.TabbyEvent),
    )
    async def tabby_event(
        request: Request,
        select_kind: Annotated[str | None, Query()] = None,
        authorization: Authorization = None,
        api_key: ApiKey = None,
        x_project_id: ProjectId = None,
    ) -> Response:
        """One view, select or dismiss of a Tabby plugin. 200: it is durable. 204: of another type (ignored)."""
        caller = ingest.caller(authorization, api_key, x_project_id)
        event = tabby.parse(await _object(request), select_kind, caller)
        if isinstance(event, tabby.Ignored):
            ingest.metrics.ignored.labels(event).inc()
            return Response(status_code=204)
        await ingest.store(event)
        return Response(status_code=200)

    @router.get("/v1/stats")
    async def stats(
        authorization: Authorization = None, api_key: ApiKey = None, x_project_id: ProjectId = None
    ) -> Stats:
        """Acceptance and reward per policy version, and the ledger's totals, of the key's project."""
        caller = ingest.caller(authorization, api_key, x_project_id, "admin")
        return await ingest.stats(caller.project_id)

    return router


async def _object(request: Request) -> dict[str, Any]:
    try:
        return read_object(await request.body())
    except ClientDisconnect:
        raise ApiError(400, "client_disconnected", "the body did not arrive whole") from None


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """The body in the API documentation; the route itself reads it strictly. Nested models are put in place."""
    schema = model.model_json_schema()
    nested = schema.pop("$defs", {})
    for name, field in schema["properties"].items():
        if "$ref" in field:
            schema["properties"][name] = nested[field["$ref"].rpartition("/")[2]]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
