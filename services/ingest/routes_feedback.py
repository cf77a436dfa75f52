"""`POST /v1/feedback`: our own feedback API. 2xx once every event of the request is committed."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.ingest.documentation import parameter, takes
from services.ingest.door import Endpoint
from services.ingest.own_queries import stored_digests
from services.ingest.protocols import own
from services.ingest.routes import ERRORS, Ingest, object_of
from shared.web.errors import ApiError, ErrorBody

FEEDBACK = "/v1/feedback"


def feedback_endpoint(ingest: Ingest) -> Endpoint:
    """What answers a request; it reads the request itself, as those of the other events do."""

    async def feedback(request: Request) -> Response:
        """What became of completions, by their ids: one event, or `{"events": […]}` with up to 500.

        A request is valid as a whole, or refused as a whole with the first wrong field in `param`. 200: every event is
        durable. After a 503 or a broken connection some of them may be; send the same again, nothing counts twice.
        """
        caller = ingest.caller_of(request)
        told = own.Request.parse(await object_of(request), request.headers.get("idempotency-key"), caller)
        await _store(ingest, told)
        return Response(told.answer().model_dump_json(), media_type="application/json")

    return feedback


async def _store(ingest: Ingest, request: own.Request) -> None:
    """Raises 409 where an event's id was used before for one that said otherwise.

    Where the request's key is the id, its first event goes ahead: under a key that was used, nothing else is stored.
    """
    first = next((at for at, one in enumerate(request.told) if one.keyed), None)
    if first is not None:
        await _store_some(ingest, request, [first])
    await _store_some(ingest, request, [at for at in range(len(request.told)) if at != first])


async def _store_some(ingest: Ingest, request: own.Request, places: list[int]) -> None:
    events = [request.told[at].event for at in places]
    results = await asyncio.gather(*(ingest.store(event) for event in events), return_exceptions=True)
    failed = next((error for error in results if isinstance(error, BaseException)), None)
    if failed is not None:
        raise failed
    repeated = [at for at, new in zip(places, results, strict=True) if not new]
    if repeated:
        await _check_repeated(ingest, request, repeated)


async def _check_repeated(ingest: Ingest, request: own.Request, places: list[int]) -> None:
    async with ingest.ledger() as session:
        stored = await stored_digests(session, [request.told[at].event.dedupe_key for at in places])
    for at in places:
        told = request.told[at]
        if stored.get(told.event.dedupe_key, told.digest) != told.digest:
            raise _used_before("Idempotency-Key" if told.keyed else request.field(at, "event_id"))


def _used_before(param: str) -> ApiError:
    message = f"{param}: it was used before, for an event that said otherwise; this one was not stored"
    return ApiError(409, "idempotency_conflict", message, param=param)


def make_feedback_router(endpoint: Endpoint) -> APIRouter:
    """The route, documented."""
    router = APIRouter(responses=ERRORS)
    router.add_api_route(
        FEEDBACK,
        endpoint,
        methods=["POST"],
        response_model=own.EventAnswer | own.BatchAnswer,
        responses={409: {"model": ErrorBody, "description": "An event id was used before for another event"}},
        openapi_extra=takes(own.Event, own.Batch, parameters=(parameter("header", "idempotency-key"),)),
    )
    return router
