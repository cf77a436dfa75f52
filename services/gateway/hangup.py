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
    task = asyncio.create_task(work)
    listener = asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait({task, listener}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        for other in (task, listener):
            await _cancel(other)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Task[Any]) -> None:
    if task.done():
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
