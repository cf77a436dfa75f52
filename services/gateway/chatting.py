"""Who answers a chat: the configured server, or the first replica of the engine that is well."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import ClientResponse
from starlette.responses import Response

from services.gateway.completion import Parts
from services.gateway.forward import NobodyThere, PassedOn
from services.gateway.protocols.chat import chat_away, for_model
from services.gateway.router import Replica

_JSON = {"Content-Type": "application/json"}
_TRY_ANOTHER = (429, 500, 502, 503, 504)


async def chat(parts: Parts, body: bytes, value: dict[str, Any], project_id: str) -> Response:
    """`value` is what `body` says. Raises 503 `ApiError`."""
    settings = parts.settings
    if settings.chat_url:
        key = {"Authorization": f"Bearer {settings.chat_api_key}"} if settings.chat_api_key else {}
        return await _ask(parts, f"{settings.chat_url}/chat/completions", body, _JSON | key, _nothing)
    for_engine = for_model(value, settings.served_model_name)
    left = parts.router.candidates(f"{project_id}\nchat")
    while left:
        replica = left.pop(0)
        answer = await _ask_replica(parts, replica, for_engine, may_refuse=not left)
        if answer is not None:
            return PassedOn(answer, settings.chat_gap_timeout_s, partial(_leave, replica))
    raise chat_away()


async def _ask_replica(parts: Parts, replica: Replica, body: bytes, *, may_refuse: bool) -> ClientResponse | None:
    """Its answer, which holds a place there until `_leave`; None where another replica should be asked."""
    replica.in_flight += 1
    try:
        url, limit_s = f"{replica.url}/v1/chat/completions", parts.settings.chat_first_byte_timeout_s
        answer = await parts.forward.post(url, body, _JSON, limit_s)
    except NobodyThere:
        _leave(replica)
        parts.router.failed(replica, "connect")
        return None
    except BaseException:
        _leave(replica)
        raise
    if answer.status in _TRY_ANOTHER and not may_refuse:
        answer.close()
        _leave(replica)
        return None
    return answer


async def _ask(parts: Parts, url: str, body: bytes, headers: dict[str, str], on_end: Callable[[], None]) -> Response:
    try:
        answer = await parts.forward.post(url, body, headers, parts.settings.chat_first_byte_timeout_s)
    except NobodyThere:
        raise chat_away() from None
    return PassedOn(answer, parts.settings.chat_gap_timeout_s, on_end)


def _leave(replica: Replica) -> None:
    replica.in_flight -= 1


def _nothing() -> None:
    pass
