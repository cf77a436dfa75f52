"""The life of one completion request: a replica is found, its tokens flow, what was sampled is recorded.

`open` → `visibles` → `end`. Whatever happens, `end` is called once it has begun, and Generations are made there.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from services.gateway.call import Call, engine_body
from services.gateway.capture import Capture, Visible
from services.gateway.chunks import parse_chunk
from services.gateway.emitter import Emitter
from services.gateway.errors import EngineAway, EngineFailed, unavailable
from services.gateway.metrics import GatewayMetrics
from services.gateway.router import Replica, Router
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import EngineAnswer, Upstream
from shared.contracts.generation import Generation

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """What every completion uses; one per app."""

    settings: GatewaySettings
    upstream: Upstream
    router: Router
    emitter: Emitter
    metrics: GatewayMetrics


class Completion:
    """One request."""

    def __init__(self, call: Call, parts: Parts) -> None:
        self.call = call
        self.capture = Capture(call)
        self._parts = parts
        self._replica: Replica | None = None
        self._answer: EngineAnswer | None = None
        self._first_token_s: float | None = None
        self._failed = False
        self._ended = False
        parts.metrics.in_flight.inc()

    async def open(self) -> None:
        """Returns when the first tokens are there. Raises `ApiError`: the engine's refusal, or 503."""
        body = engine_body(self.call, self._parts.settings.served_model_name)
        for replica in self._parts.router.candidates():
            self._take(replica)
            try:
                self._answer = await self._parts.upstream.open(replica.url, body)
            except EngineAway as error:
                self._count(error)
                if not error.retry:
                    break
            else:
                return
        raise unavailable()

    async def visibles(self) -> AsyncGenerator[Visible, None]:
        """What the client may see, as it comes. Raises `EngineFailed`."""
        assert self._answer is not None
        try:
            async with aclosing(self._answer.events()) as events:
                async for event in events:
                    for delta in parse_chunk(event):
                        self._first_token_s = self._first_token_s or self._elapsed()
                        visible = self.capture.add(delta)
                        if visible is not None:
                            yield visible
                    if self.capture.finished:
                        return
            raise EngineFailed("truncated")
        except EngineFailed as error:
            self._failed = True
            self._count(error)
            raise

    async def settle(self) -> None:
        """After the last token has been passed on."""
        if self._answer is not None:
            await self._answer.settle()

    def end(self, *, client_gone: bool = False, refused: bool = False) -> None:
        """Close the connection to the engine and record. Never waits; only the first call counts.

        `refused`: the engine never took the request, so there is nothing to record.
        """
        if self._ended:
            return
        self._ended = True
        if self._answer is not None:
            self._answer.close()
        self._parts.metrics.in_flight.dec()
        replica = self._let_go()
        if client_gone:
            self._parts.metrics.disconnects.labels(_flag(self.call.stream)).inc()
        if not refused:
            self._record(replica, client_gone)

    def _record(self, replica: Replica | None, client_gone: bool) -> None:
        generations = self.capture.generations(
            replica="" if replica is None else replica.name,
            client_gone=client_gone,
            failed=self._failed,
            first_token_s=self._first_token_s,
            total_s=self._elapsed(),
        )
        for generation in generations:
            self._see_version(replica, generation)
            self._parts.metrics.observe(generation)
            self._parts.emitter.offer(generation)

    def _see_version(self, replica: Replica | None, generation: Generation) -> None:
        if replica is not None and generation.policy_spans:
            replica.version = generation.policy_spans[-1].version
            self._parts.metrics.live_version.labels(replica.name).set(replica.version)

    def _take(self, replica: Replica) -> None:
        self._let_go()
        self._replica = replica
        replica.in_flight += 1

    def _let_go(self) -> Replica | None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.in_flight -= 1
            if self._answer is not None and not self._failed:
                self._parts.router.answered(replica)
        return replica

    def _count(self, error: EngineFailed) -> None:
        name = "" if self._replica is None else self._replica.name
        self._parts.metrics.upstream_errors.labels(name, error.kind).inc()
        log.warning("engine failed", replica=name, kind=error.kind, before_first_token=isinstance(error, EngineAway))
        if self._replica is not None:
            self._parts.router.failed(self._replica)

    def _elapsed(self) -> float:
        return time.monotonic() - self.call.arrived_s


def _flag(stream: bool) -> str:
    return "true" if stream else "false"
