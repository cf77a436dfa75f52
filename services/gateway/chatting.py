"""Who answers a chat: the configured server, or a replica of the engine. The first that answers at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from services.gateway.completion import Parts
from services.gateway.forward import NobodyThere, PassedOn
from services.gateway.protocols.chat import chat_away, for_model
from services.gateway.router import Replica

_JSON = {"Content-Type": "application/json"}


async def chat(parts: Parts, body: bytes, value: dict[str, Any], project_id: str) -> Response:
    """`value` is what `body` says. Raises 503 `ApiError`."""
    settings = parts.settings
    if settings.chat_url:
        key = {"Authorization": f"Bearer {settings.chat_api_key}"} if settings.chat_api_key else {}
        return await _ask(parts, f"{settings.chat_url}/chat/completions", body, _JSON | key, _nothing)
    for_engine = for_model(value, settings.served_model_name)
    for replica in parts.router.candidates(f"{project_id}\nchat"):
        try:
            return await _ask_replica(parts, replica, for_engine)
        except NobodyThere:
            continue
    raise chat_away()


async def _ask_replica(parts: Parts, replica: Replica, body: bytes) -> Response:
    replica.in_flight += 1
    try:
        answer = await parts.forward.post(
            f"{replica.url}/v1/chat/completions", body, _JSON, parts.settings.chat_first_byte_timeout_s
        )
    except BaseException:
        _leave(replica)
        raise
    return PassedOn(answer, parts.settings.chat_gap_timeout_s, partial(_leave, replica))


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
