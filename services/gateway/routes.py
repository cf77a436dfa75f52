"""The HTTP routes: authenticate, parse, open the completion, hand it to its answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from services.gateway.admission import SLOT, Admission
from services.gateway.answers import StreamedAnswer, collect
from services.gateway.capture import Visible
from services.gateway.completion import Completion, Parts
from services.gateway.errors import EngineFailed, unavailable
from services.gateway.hangup import ClientGone, unless_gone
from services.gateway.protocols import openai
from shared.keys import Key, KeyRing
from shared.kit.clock import utc_now
from shared.web.errors import ApiError

T = TypeVar("T")
CLIENT_GONE = 499
_SLACK_S = 10.0
"""A client may read this much slower than the engine may take."""


class Routes:
    """`POST /v1/completions` and `GET /v1/models`."""

    def __init__(self, parts: Callable[[], Parts], keys: KeyRing, admission: Admission) -> None:
        self._parts = parts
        self._keys = keys
        self._admission = admission
        self._created = int(time.time())
        self.router = APIRouter()
        self.router.add_api_route(
            "/v1/completions",
            self.completions,
            methods=["POST"],
            response_class=Response,
            openapi_extra=_request_schema(),
        )
        self.router.add_api_route("/v1/models", self.models, methods=["GET"])

    async def models(self, request: Request) -> JSONResponse:
        """The one model that is served, whatever its version."""
        self._authenticate(request)
        return JSONResponse(openai.models(self._parts().settings.served_model_name, self._created))

    async def completions(self, request: Request) -> Response:
        """One completion, streamed or whole."""
        return await self._counted(request, self._completions)

    async def _completions(self, request: Request) -> Response:
        arrived_s, now = time.monotonic(), utc_now()
        parts = self._parts()
        key = self._authenticate(request)
        request.scope[SLOT] = self._admission.enter(key)
        project_id = key.project(request.headers.get("x-project-id"))
        body = openai.parse(await request.body())
        request.state.stream = bool(body.stream)
        call = openai.to_call(body, key, project_id, parts.settings, now=now, arrived_s=arrived_s)
        completion = Completion(call, parts)
        limit_s = parts.settings.engine_total_timeout_s + _SLACK_S
        writer = openai.Writer(call)
        if call.stream:
            await self._guarded(request, completion, completion.open(), limit_s)
            return StreamedAnswer(completion, writer, limit_s)
        seen = await self._guarded(request, completion, self._whole(completion), limit_s)
        completion.end()
        return Response(writer.answer(completion.capture, seen), media_type="application/json")

    async def _whole(self, completion: Completion) -> list[Visible]:
        await completion.open()
        return await collect(completion)

    async def _guarded(
        self, request: Request, completion: Completion, work: Coroutine[Any, Any, T], limit_s: float
    ) -> T:
        """`work`, its failures as answers; the completion ends with it unless it succeeds."""
        try:
            return await unless_gone(request.receive, work, limit_s)
        except ClientGone:
            completion.end(client_gone=True)
            raise
        except ApiError:
            completion.end(refused=True)
            raise
        except EngineFailed as error:
            completion.end()
            raise unavailable(error.kind) from None
        except BaseException:
            completion.end()
            raise

    def _authenticate(self, request: Request) -> Key:
        return self._keys.authenticate(request.headers.get("authorization"), request.headers.get("api-key"), "complete")

    async def _counted(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        status = 500
        try:
            response = await handler(request)
            status = response.status_code
            return response
        except ApiError as error:
            status = error.status
            raise
        except ClientGone:
            status = CLIENT_GONE
            return Response(status_code=CLIENT_GONE)
        finally:
            stream = getattr(request.state, "stream", False)
            self._parts().metrics.requests.labels(str(status), "true" if stream else "false").inc()


def _request_schema() -> dict[str, object]:
    schema = openai.CompletionRequest.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
