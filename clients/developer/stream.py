"""One completion request, read in the background as Continue's ``ListenableGenerator`` reads it.

In: a ``Post``. Out: the text so far, whether it ended, and how it failed. The request lives on when the developer
types on: it is closed by the next request, at the editor's processing limit, or by the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import orjson

from clients.developer.wire import Post

_CHECK_EVERY = 10
_DETAIL_CHARS = 200


@dataclass(frozen=True, slots=True)
class CompletionFailure:
    """A completion that broke before the client itself closed it."""

    at: float
    """Seconds since the epoch."""
    kind: str
    """``http`` (not 200), ``connection`` (no answer), ``error`` (in mid-stream) or ``broken`` (no ``[DONE]``)."""
    status: int | None
    detail: str
    after_s: float


class CompletionStream:
    """Starts at once. ``on_failure`` is called at most once, when the completion breaks without our doing."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        post: Post,
        *,
        processing_limit_s: float,
        on_failure: Callable[[CompletionFailure], None],
    ) -> None:
        self.text = ""
        self.ended = False
        self.failure: CompletionFailure | None = None
        self.first_token_s: float | None = None
        self._http = http
        self._post = post
        self._limit_s = processing_limit_s
        self._on_failure = on_failure
        self._started = time.monotonic()
        self._changed = asyncio.Event()
        self._answering = False
        self._done = False
        self._task = asyncio.create_task(self._run())

    async def first_line(self, typed_ahead: int = 0) -> str:
        """What follows the characters typed ahead, up to the first newline; waits for it or for the end."""
        while True:
            self._changed.clear()
            line, newline, _ = self.text[typed_ahead:].partition("\n")
            if newline or self.ended:
                return line
            await self._changed.wait()

    async def close(self) -> None:
        """Hang up. Not a failure; a stream that ended already is left as it is."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self.ended = True

    async def _run(self) -> None:
        try:
            async with self._http.post(self._post.url, headers=self._post.headers, json=self._post.body) as response:
                if response.status == 200:
                    self._answering = True
                    await self._read(response)
                else:
                    self._fail("http", response.status, await response.text())
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            self._fail("broken" if self._answering else "connection", None, f"{type(error).__name__}: {error}")
        finally:
            self.ended = True
            self._changed.set()

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        chunks = 0
        async for line in response.content:
            if not line.startswith(b"data:"):
                continue
            if not self._take(line.removeprefix(b"data:").strip()):
                return
            chunks += 1
            if chunks % _CHECK_EVERY == 0 and time.monotonic() - self._started > self._limit_s and not self._done:
                return
        if not self._done:
            self._fail("broken", response.status, "the stream ended without [DONE]")

    def _take(self, data: bytes) -> bool:
        """One event of the stream; False where the editor stops reading."""
        if data == b"[DONE]":
            self._done = True
            return True
        chunk = orjson.loads(data)
        if "error" in chunk:
            self._fail("error", 200, str(chunk["error"]))
            return False
        if chunk.get("choices") and (text := chunk["choices"][0].get("text")):
            self._append(text)
        return True

    def _append(self, text: str) -> None:
        if self.first_token_s is None:
            self.first_token_s = time.monotonic() - self._started
        self.text += text
        self._changed.set()

    def _fail(self, kind: str, status: int | None, detail: str) -> None:
        after_s = time.monotonic() - self._started
        self.failure = CompletionFailure(time.time(), kind, status, detail[:_DETAIL_CHARS], after_s)
        self._on_failure(self.failure)
