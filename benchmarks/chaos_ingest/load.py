"""Developers and their gateway: generations by the gateway's own emitter, events by clients that try until a 2xx.

Out: everything that was promised. A generation counts once the emitter has handed it over, an event once it was
answered 2xx; both are what must be found again.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from benchmarks.chaos_ingest.victims import KEYS
from shared.contracts.generation import Generation, PolicySpan, Sampling
from shared.contracts.ids import new_request_id
from shared.keys import KeyRing

TEXT = ("return", " left", " +", " right")
CLIENT_TIMEOUT = aiohttp.ClientTimeout(total=4)
RETRY_S = 0.2
THINK_S = 0.25
PLANS: dict[str, tuple[bool, ...]] = {
    "accepted": (True,),
    "rejected": (False,),
    "late accept": (False, True),
    "sent twice": (True, True),
    "rejected, sent twice": (False, False),
}
WEIGHTS = (40, 30, 10, 10, 10)


@dataclass
class Promises:
    """What we were told is safe."""

    generations: set[str] = field(default_factory=set)
    displays: dict[str, bool] = field(default_factory=dict)
    """By the client's completion id: the best verdict that was acknowledged."""
    facts: set[tuple[str, bool]] = field(default_factory=set)
    """Acknowledged (completion id, verdict)."""
    answers: Counter[str] = field(default_factory=Counter)
    """2xx, other statuses, and exceptions of the connection."""

    def acknowledged(self, completion_id: str, accepted: bool) -> None:
        """One 2xx."""
        self.facts.add((completion_id, accepted))
        self.displays[completion_id] = accepted or self.displays.get(completion_id, False)
        self.answers["acknowledged"] += 1


class Developer:
    """Asks for a completion, sees it, says what became of it; again and again."""

    def __init__(self, number: int, url: str, offer: Any, http: aiohttp.ClientSession, promises: Promises) -> None:
        self._random = random.Random(number)
        self._secret = KEYS[number % len(KEYS)]
        self._key_id = KeyRing.open(",".join(KEYS)).authenticate(f"Bearer {self._secret}", None, "feedback").key_id
        self._url = url
        self._offer = offer
        self._http = http
        self._promises = promises

    async def work(self, stop: asyncio.Event) -> None:
        """Until told to stop; what was begun is finished."""
        while not stop.is_set():
            generation = make_generation(self._key_id)
            self._offer(generation)
            self._promises.generations.add(generation.generation_id)
            (plan,) = self._random.choices(list(PLANS.values()), WEIGHTS)
            completion_id = uuid.uuid4().hex
            for accepted in plan:
                await self._send(generation, completion_id, accepted)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._random.uniform(0, 2 * THINK_S))

    async def _send(self, generation: Generation, completion_id: str, accepted: bool) -> None:
        route = self._random.choice(("/api/training/submit", "/v1/events/continue"))
        body = event(generation, completion_id, accepted)
        if route.startswith("/v1"):
            body = {"name": "autocomplete", "schema": "0.2.0", "level": "all", "data": body}
        while True:
            if await self._sent(route, body):
                break
            await asyncio.sleep(RETRY_S)
        self._promises.acknowledged(completion_id, accepted)

    async def _sent(self, route: str, body: dict[str, Any]) -> bool:
        headers = {"Authorization": f"Bearer {self._secret}"}
        try:
            async with self._http.post(self._url + route, json=body, headers=headers) as answer:
                if answer.status not in (200, 204):
                    self._promises.answers[str(answer.status)] += 1
                return answer.status in (200, 204)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._promises.answers[type(error).__name__] += 1
            return False


def make_generation(key_id: str) -> Generation:
    """A completion in a place of its own: no other prompt is the same."""
    now = datetime.now(UTC)
    request_id = new_request_id(now)
    place = f"def add_{uuid.uuid4().hex}(left, right):\n    "
    offsets = [sum(map(len, TEXT[:index])) for index in range(len(TEXT))]
    return Generation(
        generation_id=request_id,
        request_id=request_id,
        created_at=now,
        key_id=key_id,
        project_id="default",
        protocol="openai",
        client_model="chaos",
        replica="http://127.0.0.1:8000",
        prompt=f"<|fim_prefix|>{place}<|fim_suffix|>\n<|fim_middle|>",
        prompt_token_ids=list(range(40)),
        text="".join(TEXT),
        token_ids=list(range(len(TEXT))),
        logprobs=[-0.5] * len(TEXT),
        text_offsets=offsets,
        finish_reason="length",
        sampling=Sampling(temperature=1.0, max_tokens=64),
        policy_spans=[PolicySpan(version=0, start=0, end=len(TEXT))],
        first_token_s=0.02,
        total_s=0.1,
    )


def event(generation: Generation, completion_id: str, accepted: bool) -> dict[str, Any]:
    """What Continue says about the display of a whole generation."""
    return {
        "completionId": completion_id,
        "filepath": "file:///home/dev/ws/main.py",
        "prefix": "",
        "suffix": "",
        "prompt": generation.prompt,
        "completion": generation.text,
        "modelProvider": "openai",
        "modelName": "chaos",
        "accepted": accepted,
        "timestamp": datetime.now(UTC).isoformat(),
        "time": 4000,
        "uniqueId": "chaos",
        "numLines": 1,
        "cacheHit": False,
    }
