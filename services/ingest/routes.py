"""The HTTP face: the feedback routes and the figures. Each answers 2xx only once the ledger has committed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Header, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from starlette.requests import ClientDisconnect

from services.ingest.documentation import parameter, takes
from services.ingest.door import Endpoint
from services.ingest.intake_queries import EventToStore
from services.ingest.metrics import IngestMetrics
from services.ingest.protocols import continue_, rlinf, tabby
from services.ingest.protocols.common import Caller, FeedbackEvent, read_object
from services.ingest.settings import IngestSettings
from services.ingest.stats import Stats, read_stats
from services.ingest.worker import is_temporary
from services.ingest.writer import EventWriter, LedgerBusy
from shared.keys import KeyRing, Scope
from shared.kit.clock import Clock
from shared.kit.errors import InvalidMessage, TemporaryError
from shared.web.errors import ApiError, ErrorBody

log = structlog.get_logger()

SUBMIT = "/api/training/submit"
CONTINUE = "/v1/events/continue"
TABBY = "/v1/events/tabby"
FEEDBACK_ROUTES = frozenset({SUBMIT, CONTINUE, TABBY})
PROJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Authorization = Annotated[str | None, Header()]
ApiKey = Annotated[str | None, Header()]
ProjectId = Annotated[str | None, Header()]


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (400, 401, 403, 413, 422, 503)}


@dataclass(frozen=True)
class Ingest:
    """What the routes work with."""

    settings: IngestSettings
    keys: KeyRing
    sessions: async_sessionmaker[AsyncSession]
    metrics: IngestMetrics
    clock: Clock
    writer: EventWriter

    def caller_of(self, request: Request) -> Caller:
        """The same of a request's headers."""
        headers = {name: value.decode("latin-1") for name, value in reversed(request.scope["headers"])}  # first counts
        return self.caller(headers.get(b"authorization"), headers.get(b"api-key"), headers.get(b"x-project-id"))

    def caller(self, authorization: str | None, api_key: str | None, project: str | None, *or_scope: Scope) -> Caller:
        """Who calls and for which project; `feedback` or one of the scopes is needed. Raises 401, 403 or 422."""
        key = self.keys.authenticate(authorization, api_key, "feedback", *or_scope)
        if project is not None and not PROJECT_ID.fullmatch(project):
            raise ApiError(
                422, "invalid_project", "X-Project-ID: 1 to 64 letters, digits, `.`, `_`, `-`", param="X-Project-ID"
            )
        project_id = key.project(project)
        keeps_secrets = self.settings.keeps_secrets_of(project_id)
        return Caller(key.key_id, project_id, self.settings.fim_template, keeps_secrets)

    async def store(self, event: FeedbackEvent) -> bool:
        """Returns once the event is committed; whether it is new. Raises 503 while the ledger is away or too busy."""
        began_s = time.perf_counter()
        try:
            new = await self.writer.store(EventToStore(event, self.clock()))
        except LedgerBusy:
            raise _unavailable("ledger_busy", "too many events wait to be stored", retry_after_s=1) from None
        except TemporaryError:
            raise _not_stored() from None
        except InvalidMessage:
            raise ApiError(422, "invalid_body", "the ledger cannot hold one of the values") from None
        self.metrics.commit_s.observe(time.perf_counter() - began_s)
        if new:
            self.metrics.events.labels(event.source, event.verdict).inc()
        else:
            self.metrics.repeated.labels(event.source).inc()
        return new

    async def take(self, event: FeedbackEvent | StrEnum) -> bool:
        """Store an event, or count why it is ignored; whether it was stored."""
        if isinstance(event, StrEnum):
            self.metrics.ignored.labels(event).inc()
            return False
        await self.store(event)
        return True

    async def stats(self, project_id: str) -> Stats:
        """The project's figures. Raises 503 while the ledger is away."""
        async with self.ledger() as session:
            return await read_stats(session, project_id)

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[AsyncSession]:
        """To read from. Raises 503 while it is away."""
        try:
            async with asyncio.timeout(self.settings.ingest_commit_timeout_s), self.sessions() as session:
                yield session
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("ledger away", error=type(error).__name__)
            raise _not_stored() from None


def _not_stored() -> ApiError:
    return _unavailable("ledger_unavailable", "the event was not stored; send it again later", retry_after_s=2)


def _unavailable(code: str, message: str, *, retry_after_s: int) -> ApiError:
    return ApiError(503, code, message, type_="server_error", headers={"Retry-After": str(retry_after_s)})


def event_endpoints(ingest: Ingest) -> dict[str, Endpoint]:
    """What answers an event, by path. They read the request themselves: FastAPI's way costs more than the event."""

    submitted = Response(rlinf.RlinfAnswer(message="stored").model_dump_json(), media_type="application/json")
    empty, nothing = Response(status_code=200), Response(status_code=204)

    async def submit(request: Request) -> Response:
        """One accept or reject from RLinf's modified Continue. 200: it is durable."""
        caller = ingest.caller_of(request)
        await ingest.store(rlinf.parse(await object_of(request), caller))
        return submitted

    async def continue_event(request: Request) -> Response:
        """One event of stock Continue's dev data. 204: it is durable, or of a kind that says nothing (ignored)."""
        caller = ingest.caller_of(request)
        await ingest.take(continue_.parse(await object_of(request), caller))
        return nothing

    async def tabby_event(request: Request) -> Response:
        """One view, select or dismiss of a Tabby plugin. 200: it is durable. 204: of another type (ignored)."""
        caller = ingest.caller_of(request)
        event = tabby.parse(await object_of(request), request.query_params.get("select_kind"), caller)
        return empty if await ingest.take(event) else nothing

    return {SUBMIT: submit, CONTINUE: continue_event, TABBY: tabby_event}


def make_router(ingest: Ingest, endpoints: Mapping[str, Endpoint]) -> APIRouter:
    """All routes of ingest but the probes."""
    router = APIRouter(responses=ERRORS)
    ignored: dict[int | str, dict[str, Any]] = {204: {"description": "An event of another type: taken and ignored"}}
    post = partial(router.add_api_route, methods=["POST"])
    post(SUBMIT, endpoints[SUBMIT], response_model=rlinf.RlinfAnswer, openapi_extra=takes(rlinf.RlinfEvent))
    post(
        CONTINUE,
        endpoints[CONTINUE],
        status_code=204,
        response_class=Response,
        openapi_extra=takes(continue_.ContinueEvent),
    )
    post(
        TABBY,
        endpoints[TABBY],
        response_class=Response,
        responses=ignored,
        openapi_extra=takes(tabby.TabbyEvent, parameters=(parameter("query", "select_kind"),)),
    )

    @router.get("/v1/stats")
    async def stats(
        authorization: Authorization = None, api_key: ApiKey = None, x_project_id: ProjectId = None
    ) -> Stats:
        """Acceptance and reward per policy version, and the ledger's totals, of the key's project."""
        caller = ingest.caller(authorization, api_key, x_project_id, "admin")
        return await ingest.stats(caller.project_id)

    return router


async def object_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body. Raises a 400 where it is none."""
    try:
        return read_object(await request.body())
    except ClientDisconnect:
        raise ApiError(400, "client_disconnected", "the body did not arrive whole") from None
