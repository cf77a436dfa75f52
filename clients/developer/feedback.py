"""Posts feedback events as Continue does: one attempt, lost on error. Counts what was stored and what was lost.

In: an outcome and whether it was accepted. Out: one ``Delivery`` per event, once the server has answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from clients.developer.wire import DEFAULT_SETTINGS, EditorSettings, FeedbackFormat, Outcome, feedback_post

_DETAIL_CHARS = 200


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one developer's events go, and how they are written."""

    ingest_url: str
    key: str
    project: str
    form: FeedbackFormat
    settings: EditorSettings = DEFAULT_SETTINGS


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event and the answer to it."""

    outcome: Outcome
    accepted: bool
    sent_at: float
    """Seconds since the epoch."""
    status: int | None
    """None: no answer at all."""
    detail: str
    took_s: float

    @property
    def stored(self) -> bool:
        """The server answered 2xx."""
        return self.status is not None and 200 <= self.status < 300


class FeedbackSender:
    """Sends in the background; ``on_delivery`` is called once per event."""

    def __init__(
        self, http: aiohttp.ClientSession, destination: Destination, on_delivery: Callable[[Delivery], None]
    ) -> None:
        self._http = http
        self._to = destination
        self._on_delivery = on_delivery
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, outcome: Outcome, accepted: bool) -> None:
        """Post the event; does not wait."""
        task = asyncio.create_task(self._post(outcome, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait for the answers to all events sent so far."""
        await asyncio.gather(*self._tasks)

    async def _post(self, outcome: Outcome, accepted: bool) -> None:
        to = self._to
        post = feedback_post(to.form, to.ingest_url, to.key, to.project, outcome, accepted, to.settings)
        sent_at, started = time.time(), time.monotonic()
        status: int | None = None
        detail = ""
        try:
            async with self._http.post(post.url, headers=post.headers, json=post.body) as response:
                status, detail = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status, detail = None, f"{type(error).__name__}: {error}"
        took_s = time.monotonic() - started
        self._on_delivery(Delivery(outcome, accepted, sent_at, status, detail[:_DETAIL_CHARS], took_s))
