"""The editor extension: Continue's behaviour around a completion, over HTTP.

In: a cursor (prefix, suffix, file) after the last keystroke. Out: what is shown, and later, on its own timers, the
feedback events. Written after Continue 2.0.0: ``CompletionProvider``, ``GeneratorReuseManager``,
``AutocompleteLoggingService``; configured for single lines and without its cache.

What is sped up and what is not: the debounce, the ten seconds until a suggestion counts as rejected and the half second
within which a replaced one does not count are a person's time and are divided by ``speed``. The processing limit and
the developer's patience wait for a server that does not run faster, so they stay in real seconds.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import aiohttp

from clients.developer.prompts import fim_prompt, shown_text
from clients.developer.stream import CompletionFailure, CompletionStream
from clients.developer.wire import DEFAULT_SETTINGS, EditorSettings, Outcome, completion_post, now_iso

REJECTED_AFTER_S = 10.0
REPLACED_WITHIN_S = 0.5
_PROCESSING_FACTOR = 2.5

AnswerKind = Literal["shown", "empty", "cancelled", "failed"]
OnFeedback = Callable[[Outcome, bool], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request. ``outcome`` is there when something is shown."""

    kind: AnswerKind
    reused: bool
    """No request was made: the developer typed what an earlier completion had said, and it is read on."""
    outcome: Outcome | None = None
    first_token_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where completions are asked for."""

    gateway_url: str
    key: str
    unique_id: str
    speed: float = 1.0
    settings: EditorSettings = DEFAULT_SETTINGS


class ContinueEditor:
    """One developer's editor. ``on_feedback`` is called where Continue posts an event."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        place: Place,
        on_feedback: OnFeedback,
        on_failure: Callable[[CompletionFailure], None],
    ) -> None:
        self._http = http
        self._place = place
        self._on_failure = on_failure
        self._stream: CompletionStream | None = None
        self._stream_prefix = ""
        self._log = FeedbackLog(on_feedback, place.speed)

    async def ask(self, prefix: str, suffix: str, filepath: str, patience_s: float) -> Answer:
        """Debounce, ask (or read on), wait at most ``patience_s`` real seconds from the request on."""
        started = time.monotonic()
        await asyncio.sleep(self._place.settings.debounce_ms / 1000 / self._place.speed)
        prompt = fim_prompt(prefix, suffix)
        asked = time.monotonic()
        stream, reused = await self._stream_for(prefix, prompt)
        try:
            async with asyncio.timeout(patience_s):
                raw = await stream.first_line(len(prefix) - len(self._stream_prefix))
        except TimeoutError:
            return Answer("cancelled", reused)
        text = shown_text(raw, prefix, suffix)
        if not text:
            return Answer("failed" if stream.failure and not reused else "empty", reused, None, stream.first_token_s)
        now = time.monotonic()
        outcome = Outcome(
            completion_id=str(uuid.uuid4()),
            prompt=prompt,
            prefix=prefix,
            suffix=suffix or "\n",
            completion=text,
            filepath=filepath,
            time_ms=round((now - started) * 1000),
            timestamp=now_iso(),
            unique_id=self._place.unique_id,
        )
        return Answer("shown", reused, outcome, stream.first_token_s, now - asked)

    def display(self, outcome: Outcome) -> None:
        """The suggestion is on the screen: the rejection timer starts."""
        self._log.displayed(outcome)

    def accept(self, completion_id: str) -> None:
        """Tab."""
        self._log.accepted(completion_id)

    @property
    def undecided(self) -> int:
        """Displays that may still become a rejection."""
        return self._log.pending

    async def finish(self) -> None:
        """Hang up and wait for the timers, so that every display has its event."""
        if self._stream is not None:
            await self._stream.close()
        await self._log.drain()

    async def _stream_for(self, prefix: str, prompt: str) -> tuple[CompletionStream, bool]:
        """Continue reuses a completion when the new prefix is the old one plus a beginning of what came back."""
        if self._stream is not None:
            said = self._stream_prefix + self._stream.text
            if len(prefix) >= len(self._stream_prefix) and said.startswith(prefix):
                return self._stream, True
            await self._stream.close()
        post = completion_post(self._place.gateway_url, self._place.key, prompt)
        limit_s = self._place.settings.model_timeout_ms / 1000 * _PROCESSING_FACTOR
        self._stream = CompletionStream(self._http, post, processing_limit_s=limit_s, on_failure=self._on_failure)
        self._stream_prefix = prefix
        return self._stream, False


class FeedbackLog:
    """Which displays are reported, and when: Continue's ``AutocompleteLoggingService``."""

    def __init__(self, on_feedback: OnFeedback, speed: float) -> None:
        self._on_feedback = on_feedback
        self._speed = speed
        self._outcomes: dict[str, Outcome] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last: tuple[str, float] | None = None

    def displayed(self, outcome: Outcome) -> None:
        """Rejected in ten seconds, unless accepted, replaced at once, or continued by a later display."""
        loop = asyncio.get_running_loop()
        key = outcome.completion_id
        self._outcomes[key] = outcome
        self._timers[key] = loop.call_later(REJECTED_AFTER_S / self._speed, self._reject, key)
        if self._last is not None and self._last[0] in self._timers:
            previous, shown_at = self._last
            quick = loop.time() - shown_at < REPLACED_WITHIN_S / self._speed
            if quick or _continues(self._outcomes[previous].completion, outcome.completion):
                self._forget(previous)
        self._last = (key, loop.time())

    def accepted(self, completion_id: str) -> None:
        """Also after the rejection was reported: then it is a second event about the same display."""
        outcome = self._forget(completion_id)
        if outcome is not None:
            self._on_feedback(outcome, True)

    @property
    def pending(self) -> int:
        """Running timers."""
        return len(self._timers)

    async def drain(self) -> None:
        """Wait until no timer runs."""
        loop = asyncio.get_running_loop()
        while self._timers:
            last = max(timer.when() for timer in self._timers.values())
            await asyncio.sleep(max(0.0, last - loop.time()) + 0.001)

    def _reject(self, completion_id: str) -> None:
        del self._timers[completion_id]
        self._on_feedback(self._outcomes[completion_id], False)

    def _forget(self, completion_id: str) -> Outcome | None:
        timer = self._timers.pop(completion_id, None)
        if timer is not None:
            timer.cancel()
        return self._outcomes.pop(completion_id, None)


def _continues(before: str, after: str) -> bool:
    """Whether Continue takes two displays for one: the first line of either begins or ends with the other's."""
    a, b = before.split("\n", 1)[0], after.split("\n", 1)[0]
    return a.endswith(b) or b.endswith(a) or a.startswith(b) or b.startswith(a)
