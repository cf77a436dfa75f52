"""What every route does first and last, whatever the protocol: who asks, may they, is there room, how it is counted."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from services.gateway.admission import SLOT, Admission
from services.gateway.answers import StreamedAnswer, collect
from services.gateway.call import Call, Origin
from services.gateway.capture import Visible
from services.gateway.completion import Completion, Parts
from services.gateway.errors import TOO_LONG, EngineFailed, unavailable
from services.gateway.hangup import ClientGone, unless_gone
from services.gateway.protocols.common import Begin, Begun, Writer
from shared.keys import Key, KeyRing, Scope
from shared.kit.clock import utc_now
from shared.web.errors import ApiError

T = TypeVar("T")
CLIENT_GONE = 499
_SLACK_S = 10.0
"""A client may read this much slower than the engine may take."""


class Handler:
    """One per app."""

    def __init__(self, parts: Callable[[], Parts], keys: KeyRing, admission: Admission) -> None:
        self._parts = parts
        self._keys = keys
        self._admission = admission

    @property
    def parts(self) -> Parts:
        """What the app has opened."""
        return self._parts()

    def authenticate(self, request: Request, scope: Scope) -> Key:
        """Raises 401 and 403 `ApiError`."""
        return self._keys.authenticate(request.headers.get("authorization"), request.headers.get("api-key"), scope)

    def enter(self, request: Request) -> Origin:
        """Who wants something of the engine. Their place is free when the answer is over. Raises 401, 403, 429."""
        arrived_s, now = time.monotonic(), utc_now()
        key = self.authenticate(request, "complete")
        request.scope[SLOT] = self._admission.enter(key)
        return Origin(key.key_id, key.project(request.headers.get("x-project-id")), now, arrived_s)

    async def complete(self, request: Request, begin: Begin) -> Response:
        """One completion, streamed or whole."""
        return await self._counted(request, lambda: self._complete(request, begin))

    async def _complete(self, request: Request, begin: Begin) -> Response:
        origin = self.enter(request)
        begun = begin(await request.body(), origin, self.parts.settings)
        if isinstance(begun, bytes):
            return Response(begun, media_type="application/json")
        request.state.stream = begun.call.stream
        return await self._fitting(request, begun)

    async def _fitting(self, request: Request, begun: Begun) -> Response:
        """A prompt that we wrote is made shorter until the engine takes it."""
        call = begun.call
        while True:
            try:
                return await self._answer(request, call, begun.writer)
            except ApiError as error:
                shorter = call.shorter() if error.code == TOO_LONG else None
                if shorter is None:
                    raise
                call = shorter

    async def _answer(self, request: Request, call: Call, writer: Writer) -> Response:
        completion = Completion(call, self.parts)
        limit_s = self.parts.settings.engine_total_timeout_s + _SLACK_S
        if call.stream:
            await self._guarded(request, completion, completion.open(), limit_s)
            return StreamedAnswer(completion, writer, limit_s)
        seen = await self._guarded(request, completion, self._whole(completion), limit_s)
        finished = completion.finished()
        completion.end()
        return Response(writer.answer(finished, seen), media_type="application/json")

    async def _whole(self, completion: Completion) -> Sequence[Visible]:
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

    async def _counted(self, request: Request, handle: Callable[[], Awaitable[Response]]) -> Response:
        status = 500
        try:
            response = await handle()
            status = response.status_code
            return response
        except ApiError as error:
            status = error.status
            raise
        except (ClientGone, ClientDisconnect):
            status = CLIENT_GONE
            return Response(status_code=CLIENT_GONE)
        finally:
            stream = getattr(request.state, "stream", False)
            self.parts.metrics.requests.labels(str(status), "true" if stream else "false").inc()

    async def passed_on(self, request: Request, route: str, work: Coroutine[Any, Any, Response]) -> Response:
        """An answer of another server, counted apart from completions."""
        status = 500
        try:
            response = await unless_gone(
                request.receive, work, self.parts.settings.chat_first_byte_timeout_s + _SLACK_S
            )
            status = response.status_code
            return response
        except ApiError as error:
            status = error.status
            raise
        except ClientGone:
            status = CLIENT_GONE
            return Response(status_code=CLIENT_GONE)
        finally:
            self.parts.metrics.passed_on.labels(route, str(status)).inc()
