"""Draws the other completions of a group from the live policy, through the engine.

In: an experience. Out: samples that fill its group up, credited for what an editor would display of them. The engine
being away, slow or wrong costs the siblings, never the group: it is counted, and the group goes on without them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from typing import Any

import aiohttp
from pydantic import BaseModel, ValidationError

from services.trainer import scoring
from services.trainer.metrics import TrainerMetrics
from services.trainer.settings import TrainerSettings
from shared.contracts.experience import Experience, Sample
from shared.contracts.names import BASE_POLICY_VERSION, ENGINE_UNSET_VERSION

LINE_END = "\n"


class _Logprobs(BaseModel):
    token_logprobs: list[float | None]
    text_offset: list[int]


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    weight_versions: list[tuple[str, int, int]] | None = None


class _Answer(BaseModel):
    choices: list[_Choice]
    weight_version: str | None = None


class SiblingSource:
    """One per worker. `session` belongs to the caller and carries the time limit of a request."""

    def __init__(self, session: aiohttp.ClientSession, settings: TrainerSettings, metrics: TrainerMetrics) -> None:
        self._session = session
        self._settings = settings
        self._metrics = metrics
        self._replicas = itertools.cycle(settings.engines)

    async def draw_all(self, experiences: Sequence[Experience]) -> list[list[Sample]]:
        """Siblings of each experience, in order; an empty list where none could be had."""
        gate = asyncio.Semaphore(self._settings.sibling_concurrency)

        async def one(experience: Experience) -> list[Sample]:
            async with gate:
                return await self.draw(experience)

        return list(await asyncio.gather(*map(one, experiences)))

    async def draw(self, experience: Experience) -> list[Sample]:
        """Up to `group_size - 1 - len(experience.siblings)` samples."""
        wanted = self._settings.group_size - 1 - len(experience.siblings)
        if wanted < 1:
            return []
        self._metrics.sibling_draws.inc(wanted)
        try:
            answer = await self._ask(request_body(experience, self._settings, wanted))
        except (aiohttp.ClientError, TimeoutError, ValidationError, ValueError) as error:
            self._metrics.sibling_failures.labels(reason=_reason(error)).inc(wanted)
            return []
        return self._accepted(experience, answer)

    async def _ask(self, body: dict[str, Any]) -> _Answer:
        url = f"{next(self._replicas)}/v1/completions"
        async with self._session.post(url, json=body, raise_for_status=True) as response:
            return _Answer.model_validate_json(await response.read())

    def _accepted(self, experience: Experience, answer: _Answer) -> list[Sample]:
        """Those that can be trained on; the others are counted by reason, never padded."""
        samples = []
        for choice in answer.choices:
            problem = _problem(choice, answer)
            if problem is None:
                samples.append(_sample(experience, choice, answer))
            else:
                self._metrics.sibling_failures.labels(reason=problem).inc()
        return samples


def request_body(experience: Experience, settings: TrainerSettings, count: int) -> dict[str, Any]:
    """The engine's request: the recorded sampling, `count` choices, no seed (it would repeat the shown one).

    Where the shown text had one line, sampling stops at the end of the line: what follows gets no credit anyway, and
    stopping changes no probability before it.
    """
    sampling = experience.sampling
    stop = list(sampling.stop)
    if not scoring.several_lines(experience.shown_text) and LINE_END not in stop:
        stop.append(LINE_END)
    return {
        "model": settings.served_model_name,
        "prompt": experience.prompt_token_ids,
        "n": count,
        "max_tokens": sampling.max_tokens,
        "temperature": settings.sibling_temperature or sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop": stop,
        "logprobs": 0,
        "return_token_ids": True,
    }


def credited_tokens(offsets: Sequence[int], text: str, seen: str, *, stopped: bool) -> int:
    """How many of the first tokens get a gradient: those that begin inside the displayed text.

    `offsets[t]` is where token t begins in the text. `stopped`: the policy itself ended the text (end token or stop
    string); that token is credited too where the whole text is displayed.
    """
    inside = sum(1 for offset in offsets if offset < len(seen))
    return min(len(offsets), inside + 1) if stopped and seen == text else inside


def parse_version(stamp: str | None) -> int | None:
    """The engine's weight version as our policy version; None where it says nothing usable."""
    if stamp == ENGINE_UNSET_VERSION:
        return BASE_POLICY_VERSION
    return int(stamp) if stamp is not None and stamp.isascii() and stamp.isdigit() else None


def _versions(choice: _Choice, answer: _Answer) -> list[int | None]:
    if choice.weight_versions:
        return [parse_version(stamp) for stamp, _, _ in choice.weight_versions]
    return [parse_version(answer.weight_version)]


def _problem(choice: _Choice, answer: _Answer) -> str | None:
    if not choice.token_ids:
        return "no_token_ids"
    if choice.logprobs is None or len(choice.logprobs.token_logprobs) != len(choice.token_ids):
        return "no_logprobs"
    if len(choice.logprobs.text_offset) != len(choice.token_ids):
        return "no_offsets"
    if any(value is None or not math.isfinite(value) for value in choice.logprobs.token_logprobs):
        return "bad_logprobs"
    return "no_policy_version" if None in _versions(choice, answer) else None


def _sample(experience: Experience, choice: _Choice, answer: _Answer) -> Sample:
    """Only after `_problem` found none."""
    assert choice.logprobs is not None
    assert choice.token_ids is not None
    multiline = scoring.several_lines(experience.shown_text)
    seen = scoring.displayed(choice.text, multiline=multiline)
    stopped = choice.finish_reason == "stop" and (multiline or choice.stop_reason != LINE_END)
    return Sample(
        text=choice.text,
        token_ids=choice.token_ids,
        logprobs=[value for value in choice.logprobs.token_logprobs if value is not None],
        credited_tokens=credited_tokens(choice.logprobs.text_offset, choice.text, seen, stopped=stopped),
        policy_version=min(version for version in _versions(choice, answer) if version is not None),
    )


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"http_{error.status}"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "engine_away" if isinstance(error, aiohttp.ClientError) else "bad_answer"
