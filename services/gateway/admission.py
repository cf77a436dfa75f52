"""Whether a request may begin at all. Too many are told so at once; nothing waits in line.

Three bounds, asked in this order: requests in flight of all keys together, requests in flight of this key, and its
requests per minute. All in this process's memory: see docs/decisions/0008 for why, and for the library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from throttled import MemoryStore, RateLimiterType, Throttled, rate_limiter

from services.gateway.metrics import GatewayMetrics
from services.gateway.settings import GatewaySettings
from shared.keys import Key
from shared.web.errors import ApiError

log = structlog.get_logger()

Reason = Literal["all_in_flight", "key_in_flight", "key_rate"]
SLOT = "tabwise.slot"
"""Where a request's ASGI scope holds its place."""
_BURST_S = 10
"""A key may send as many requests at once as it may in this time."""
_KEYS_REMEMBERED = 100_000
_TELL_EVERY_S = 60.0
_SOON_S = 1


class Slot:
    """One request's place. Given back once, however often it is released."""

    __slots__ = ("_admission", "_held", "_key_id")

    def __init__(self, admission: Admission, key_id: str) -> None:
        self._admission = admission
        self._key_id = key_id
        self._held = True

    def release(self) -> None:
        """The request is over."""
        if self._held:
            self._held = False
            self._admission._leave(self._key_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Admission:
    """The bounds of one gateway process. One event loop, so nothing here needs a lock."""

    def __init__(
        self, settings: GatewaySettings, metrics: GatewayMetrics, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = settings.max_in_flight
        self._most_per_key = settings.key_concurrency
        self._rate = _make_rate(settings.key_requests_per_minute)
        self._metrics = metrics
        self._monotonic = monotonic
        self._told_s: dict[str, float] = {}
        self.in_flight = 0
        self.in_flight_by_key: dict[str, int] = {}
        """Only keys that have any."""

    def enter(self, key: Key) -> Slot:
        """A place for one request; whoever takes it must release it. Raises 429 `ApiError`."""
        key_id = key.key_id
        mine = self.in_flight_by_key.get(key_id, 0)
        if self.in_flight >= self._most:
            raise self._refused(key, "all_in_flight", _SOON_S)
        if mine >= self._most_per_key:
            raise self._refused(key, "key_in_flight", _SOON_S)
        if self._rate is not None:
            result = self._rate.limit(key_id)
            if result.limited:
                raise self._refused(key, "key_rate", math.ceil(result.state.retry_after))
        self.in_flight += 1
        self.in_flight_by_key[key_id] = mine + 1
        return Slot(self, key_id)

    def _leave(self, key_id: str) -> None:
        self.in_flight -= 1
        mine = self.in_flight_by_key[key_id] - 1
        if mine:
            self.in_flight_by_key[key_id] = mine
        else:
            del self.in_flight_by_key[key_id]

    def _refused(self, key: Key, reason: Reason, retry_after_s: int) -> ApiError:
        self._metrics.refused.labels(reason).inc()
        self._tell(key, reason)
        code, message = _WORDS[reason]
        return ApiError(
            429, code, message, type_="rate_limit_error", headers={"Retry-After": str(max(_SOON_S, retry_after_s))}
        )

    def _tell(self, key: Key, reason: Reason) -> None:
        """Which key it is stands in the log, once a minute: as a metric's label it would be a series per person."""
        now_s = self._monotonic()
        if now_s - self._told_s.get(key.key_id, -math.inf) >= _TELL_EVERY_S:
            self._told_s[key.key_id] = now_s
            log.warning("requests refused", key_id=key.key_id, reason=reason)


_WORDS: dict[Reason, tuple[str, str]] = {
    "all_in_flight": ("too_many_requests", "the server has as many requests in flight as it takes; try again shortly"),
    "key_in_flight": ("too_many_requests", "this key has as many requests in flight as it may; try again shortly"),
    "key_rate": ("rate_limited", "this key has sent more requests a minute than it may; see Retry-After"),
}


def _make_rate(per_minute: int) -> Throttled | None:
    if per_minute == 0:
        return None
    quota = rate_limiter.per_min(per_minute, burst=math.ceil(per_minute * _BURST_S / 60))
    store = MemoryStore(options={"MAX_SIZE": _KEYS_REMEMBERED})
    return Throttled(using=RateLimiterType.GCRA.value, quota=quota, store=store)


class ReleaseSlots:
    """ASGI middleware: the place that a request took is free when its answer is over, in whatever way that came."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            slot: Slot | None = scope.get(SLOT)
            if slot is not None:
                slot.release()
