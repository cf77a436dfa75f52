"""Several awaitables at once; the first error ends the others and is raised as it is, not in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(work: Iterable[Coroutine[Any, Any, _T]], at_once: int | None = None) -> list[_T]:
    """Results in order; at most `at_once` run at a time."""
    places = asyncio.Semaphore(at_once) if at_once else None

    async def placed(one: Coroutine[Any, Any, _T]) -> _T:
        if places is None:
            return await one
        async with places:
            return await one

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(placed(one)) for one in work]
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
