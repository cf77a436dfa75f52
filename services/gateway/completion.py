"""The life of one completion request: a replica is found, its tokens flow, what was sampled is recorded.

`open` → `visibles` → `end`. Whatever happens, `end` is called once it has begun, and Generations are made there.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from services.gateway.asking import Asking, affinity_of
from services.gateway.call import Call, engine_body
from services.gateway.capture import Capture, Visible
from services.gateway.chunks import Delta, parse_chunk
from services.gateway.emitter import Emitter
from services.gateway.errors import EngineFailed
from services.gateway.forward import Forward
from services.gateway.metrics import GatewayMetrics
from services.gateway.protocols.common import Finished
from services.gateway.router import Replica, Router
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import Upstream
from shared.contracts.generation import Generation


@dataclass(frozen=True, slots=True)
class Parts:
    """What every completion uses; one per app."""

    settings: GatewaySettings
    upstream: Upstream
    router: Router
    emitter: Emitter
    metrics: GatewayMetrics
    forward: Forward


class Completion:
    """One request."""

    def __init__(self, call: Call, parts: Parts) -> None:
        self.call = call
        self.capture = Capture(call)
        self._parts = parts
        self._asking: Asking | None = None
        self._first_token_s: float | None = None
        self._failed = False
        self._ended = False
        parts.metrics.in_flight.inc()

    async def open(self) -> None:
        """Returns when the first tokens are there. Raises `ApiError`: the engine's refusal, 429 or 503."""
        parts, call = self._parts, self.call
        self._asking = Asking(
            parts.router,
            parts.upstream,
            parts.metrics,
            parts.settings,
            affinity=affinity_of(call),
            body=orjson.dumps(engine_body(call, parts.settings.served_model_name)),
            deadline_s=call.arrived_s + parts.settings.engine_total_timeout_s,
        )
        await self._asking.open()

    async def visibles(self) -> AsyncGenerator[list[Visible], None]:
        """What the client may see, as it comes; together what came together. Raises `EngineFailed`."""
        asking = self._opened()
        assert asking.answer is not None
        seen = self._add(asking.first)
        try:
            async with aclosing(asking.answer.batches()) as batches:
                while not self._enough():
                    yield seen
                    seen = []
                    for event in await anext(batches):
                        seen += self._add(parse_chunk(event))
            yield seen
        except (EngineFailed, StopAsyncIteration) as error:
            failure = error if isinstance(error, EngineFailed) else EngineFailed("truncated")
            self._failed = True
            asking.failed(failure)
            if seen:
                yield seen
            raise failure from None

    def _enough(self) -> bool:
        """Whether all choices are at their end, or where the protocol lets them end."""
        enough = self.call.enough
        if enough is None or self._first_token_s is None:
            return self.capture.finished
        seconds = self._elapsed() - self._first_token_s
        return all(c.finish_reason is not None or enough(c.text, seconds) for c in self.capture.choices)

    def finished(self) -> Finished:
        """What there is, at the end."""
        return Finished(self.capture, self._first_token_s, self._elapsed())

    def _add(self, deltas: list[Delta]) -> list[Visible]:
        if deltas and self._first_token_s is None:
            self._first_token_s = self._elapsed()
        visibles = [self.capture.add(delta) for delta in deltas]
        return [visible for visible in visibles if visible is not None]

    async def again(self) -> bool:
        """After `EngineFailed`, where the client has nothing yet: whether another replica begins anew."""
        if not await self._opened().again():
            return False
        self.capture, self._first_token_s, self._failed = Capture(self.call), None, False
        return True

    async def settle(self) -> None:
        """After the last token has been passed on. An answer that goes on is not waited for: `end` hangs up."""
        answer = self._opened().answer
        if answer is not None and self.capture.finished:
            await answer.settle()

    def end(self, *, client_gone: bool = False, refused: bool = False) -> None:
        """Close the connection to the engine and record. Never waits; only the first call counts.

        `refused`: the engine never took the request, so there is nothing to record.
        """
        if self._ended:
            return
        self._ended = True
        replica = None
        if self._asking is not None:
            self._asking.end()
            replica = self._asking.replica
        self._parts.metrics.in_flight.dec()
        if client_gone:
            self._parts.metrics.disconnects.labels(_flag(self.call.stream)).inc()
        if not refused:
            self._record(replica, client_gone)

    def _opened(self) -> Asking:
        assert self._asking is not None, "open() comes first"
        return self._asking

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

    def _elapsed(self) -> float:
        return time.monotonic() - self.call.arrived_s


def _flag(stream: bool) -> str:
    return "true" if stream else "false"
