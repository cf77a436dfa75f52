"""From a request's body to an open answer: replicas are asked one after the other until one samples a token.

Whatever fails before that is another replica's chance; what fails afterwards is the caller's to judge (`failed`).
"""

from __future__ import annotations

import time

import structlog

from services.gateway.attempts import Attempts, Try
from services.gateway.call import Call
from services.gateway.chunks import Delta, parse_chunk
from services.gateway.errors import EngineAway, EngineFailed, busy, unavailable
from services.gateway.metrics import GatewayMetrics
from services.gateway.router import Replica, Router
from services.gateway.settings import GatewaySettings
from services.gateway.sse import DONE
from services.gateway.upstream import EngineAnswer, Upstream

log = structlog.get_logger()
_AFFINITY_CHARACTERS = 256


def affinity_of(call: Call) -> str:
    """Requests with the same value likely share a prompt prefix: one project's one file."""
    return f"{call.project_id}\n{call.path or call.prompt[:_AFFINITY_CHARACTERS]}"


class Asking:
    """One request's search. After `open`: `answer`, and in `first` what its first event says. `end` it in any case."""

    def __init__(
        self,
        router: Router,
        upstream: Upstream,
        metrics: GatewayMetrics,
        settings: GatewaySettings,
        *,
        affinity: str,
        body: bytes,
        deadline_s: float,
    ) -> None:
        self.answer: EngineAnswer | None = None
        self.first: list[Delta] = []
        self.replica: Replica | None = None
        """Who was asked last."""
        self._router = router
        self._upstream = upstream
        self._metrics = metrics
        self._first_token_timeout_s = settings.engine_first_token_timeout_s
        self._body = body
        self._deadline_s = deadline_s
        self._holding = False
        self._failure = ""
        self._attempts = Attempts(router.candidates(affinity), self._first_token_s(), settings.engine_try_timeout_s)

    async def open(self) -> None:
        """Raises `ApiError`: the engine's refusal, 429 where all are busy, else 503."""
        if not await self._find():
            raise busy() if self._attempts.all_busy else unavailable(self._failure)

    async def again(self) -> bool:
        """After `failed`: whether another replica is found that starts from the beginning."""
        self._attempts.deadline_s = self._first_token_s()
        return await self._find()

    def failed(self, error: EngineFailed) -> None:
        """The answer broke off."""
        self._attempts.has_failed()
        self._fail(error.kind, started=True)

    def end(self) -> None:
        """Hang up. Never waits."""
        if self.answer is not None:
            self.answer.close()
            if self.replica is not None:
                self._router.answered(self.replica)
        self._let_go()

    async def _find(self) -> bool:
        while (tried := self._attempts.next(time.monotonic())) is not None:
            if self._failure:
                self._metrics.retries.labels(self._failure).inc()
            self._take(tried.replica)
            try:
                await self._try(tried)
            except EngineAway as error:
                self._away(tried, error)
            else:
                return True
        return False

    async def _try(self, tried: Try) -> None:
        """An answer counts from its first event that makes sense."""
        answer = await self._upstream.open(
            tried.replica.url, self._body, limit_s=tried.limit_s, deadline_s=self._deadline_s
        )
        try:
            if answer.first == DONE:
                raise EngineFailed("truncated")
            self.first = parse_chunk(answer.first)
        except EngineFailed as error:
            answer.close()
            raise EngineAway(error.kind) from error
        self.answer = answer

    def _away(self, tried: Try, error: EngineAway) -> None:
        if error.kind == "try_timeout":
            self._attempts.too_slow(tried)
        elif error.kind == "busy":
            self._attempts.is_busy()
        else:
            self._attempts.has_failed()
        last_wait = error.kind == "try_timeout" and tried.last
        self._fail("first_token_timeout" if last_wait else error.kind, started=False)

    def _fail(self, kind: str, *, started: bool) -> None:
        self._failure = kind
        if self.answer is not None:
            self.answer.close()
            self.answer = None
        self._let_go()
        if self.replica is not None:
            self._blame(self.replica, kind, started)

    def _blame(self, replica: Replica, kind: str, started: bool) -> None:
        self._metrics.upstream_errors.labels(replica.name, kind).inc()
        log.warning("engine failed", replica=replica.name, kind=kind, before_first_token=not started)
        if kind != "busy" and self._router.failed(replica, kind):
            self._metrics.ejections.labels(replica.name, kind).inc()
            log.warning("replica ejected", replica=replica.name, kind=kind)

    def _take(self, replica: Replica) -> None:
        self._let_go()
        self.replica, self._holding = replica, True
        replica.in_flight += 1

    def _let_go(self) -> None:
        if self._holding and self.replica is not None:
            self.replica.in_flight -= 1
        self._holding = False

    def _first_token_s(self) -> float:
        return min(time.monotonic() + self._first_token_timeout_s, self._deadline_s)
