"""The HTTP routes: which path speaks which protocol. What they have in common is the handler's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from services.gateway.admission import Admission
from services.gateway.call import Origin
from services.gateway.chatting import chat
from services.gateway.completion import Parts
from services.gateway.forward import NobodyThere
from services.gateway.handler import Handler
from services.gateway.openapi import COMPLETION_ERRORS, EVENT_ERRORS, LOOK_ERRORS, answers, request_of
from services.gateway.protocols import llamacpp, mistral, openai, tabby
from services.gateway.protocols.chat import ChatRequest, read_chat
from services.gateway.protocols.common import Begun
from services.gateway.settings import GatewaySettings
from shared.keys import KeyRing

MODELS: tuple[type[BaseModel], ...] = (
    openai.CompletionRequest,
    mistral.FimRequest,
    tabby.TabbyRequest,
    tabby.TabbyEvent,
    llamacpp.InfillRequest,
    ChatRequest,
)
_EVENT_HEADERS = ("authorization", "api-key", "x-project-id", "content-type", "user-agent")


class Routes:
    """All of them, on one router."""

    def __init__(self, parts: Callable[[], Parts], keys: KeyRing, admission: Admission) -> None:
        self._handler = Handler(parts, keys, admission)
        self._created = int(time.time())
        self.router = APIRouter()
        self._completion("/v1/completions", self.completions, openai.CompletionRequest, tabby.TabbyRequest)
        self._completion("/v1/fim/completions", self.fim, mistral.FimRequest)
        self._completion("/infill", self.infill, llamacpp.InfillRequest)
        self._completion("/v1/chat/completions", self.chat, ChatRequest)
        self._look("/v1/models", self.models, "The served model and its aliases.")
        self._look("/v1/models/{model:path}", self.model, "Any name: all are served by the live policy.", errors=(404,))
        self._look("/v1/health", self.tabby_health, "Tabby's health.", "GET", "POST")
        self._look("/v1beta/server_setting", self.tabby_setting, "Tabby's settings for its plugins.")
        self._event("/v1/events", self.tabby_event)

    def _completion(self, path: str, endpoint: Callable[..., Any], *requests: type[BaseModel]) -> None:
        self.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            response_class=Response,
            openapi_extra=request_of(*requests),
            responses=answers("The completion.", streamed=True, errors=COMPLETION_ERRORS),
        )

    def _look(
        self, path: str, endpoint: Callable[..., Any], says: str, *methods: str, errors: tuple[int, ...] = ()
    ) -> None:
        for method in methods or ("GET",):
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                response_class=JSONResponse,
                operation_id=f"{endpoint.__name__}_{method.lower()}",
                responses=answers(says, errors=LOOK_ERRORS + errors),
            )

    def _event(self, path: str, endpoint: Callable[..., Any]) -> None:
        self.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            response_class=Response,
            openapi_extra=request_of(tabby.TabbyEvent),
            responses=answers("Stored; the body is empty.", errors=EVENT_ERRORS),
        )

    async def completions(self, request: Request) -> Response:
        """OpenAI's completions, and Tabby's."""
        return await self._handler.complete(request, _openai_or_tabby)

    async def fim(self, request: Request) -> Response:
        """Mistral's fill-in-the-middle."""
        return await self._handler.complete(request, mistral.begin)

    async def infill(self, request: Request) -> Response:
        """llama.cpp's fill-in-the-middle."""
        return await self._handler.complete(request, llamacpp.begin)

    async def chat(self, request: Request) -> Response:
        """Passed on to `chat_url`, or to the engine."""
        origin = self._handler.enter(request)
        body = await request.body()
        work = chat(self._handler.parts, body, read_chat(body), origin.project_id)
        return await self._handler.passed_on(request, "chat", work)

    async def models(self, request: Request) -> JSONResponse:
        """The one model that is served, whatever its version, and the names that it is also known by."""
        self._handler.authenticate(request, "complete")
        return JSONResponse(openai.model_list(self._handler.parts.settings.model_names, self._created))

    async def model(self, request: Request, model: str) -> JSONResponse:
        """Any name is served."""
        self._handler.authenticate(request, "complete")
        served = self._handler.parts.settings.served_model_name
        return JSONResponse(openai.model_card(model, served, self._created))

    async def tabby_health(self, request: Request) -> JSONResponse:
        """Tabby's plugins ask before anything else."""
        self._handler.authenticate(request, "complete")
        return JSONResponse(tabby.health(self._handler.parts.settings.served_model_name))

    async def tabby_setting(self, request: Request) -> JSONResponse:
        """What a server tells Tabby's plugins to do."""
        self._handler.authenticate(request, "complete")
        return JSONResponse(tabby.SERVER_SETTING)

    async def tabby_event(self, request: Request) -> Response:
        """Tabby's view, select and dismiss, passed on to ingest; its answer is ours."""
        self._handler.authenticate(request, "feedback")
        return await self._handler.passed_on(request, "events", self._to_ingest(request, await request.body()))

    async def _to_ingest(self, request: Request, body: bytes) -> Response:
        parts = self._handler.parts
        query = f"?{request.url.query}" if request.url.query else ""
        headers = {name: request.headers[name] for name in _EVENT_HEADERS if name in request.headers}
        url = f"{parts.settings.ingest_url}/v1/events/tabby{query}"
        try:
            status, answer, kind = await parts.forward.post_whole(url, body, headers, parts.settings.ingest_timeout_s)
        except NobodyThere:
            raise tabby.events_away() from None
        return Response(answer, status, media_type=kind)


def _openai_or_tabby(body: bytes, origin: Origin, settings: GatewaySettings) -> Begun | bytes:
    """A body with `segments` is Tabby's."""
    return (tabby.begin if tabby.is_tabby(body) else openai.begin)(body, origin, settings)
