"""Clients hang up at any moment, Continue after almost every completion: work stops with them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is there any more to answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """The result of `work`, or `ClientGone` as soon as the client hangs up; `work` is cancelled then.

    `receive` must have given out the request's body already. A client that does not read for `limit_s` is gone too.
    """
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            listener = asyncio.create_task(_end_on_disconnect(receive, scope))
            try:
                return await work
            finally:
                listener.cancel()
    except TimeoutError:
        if scope.expired():
            raise ClientGone from None
        raise


async def _end_on_disconnect(receive: Receive, scope: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.reschedule(asyncio.get_running_loop().time())
