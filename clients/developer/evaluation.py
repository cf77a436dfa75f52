"""A fixed set of held-out moments: what would the developers have done with the model's best guess?

In: a gateway, a key of its own (it sends no feedback, so nothing of it is trained on). Out: acceptance, exact share and
mean reward, and the reward of every moment, so that two policies can be compared moment by moment.

    report = await evaluate(EvaluationConfig(gateway_url=…, key=…), on_progress=lambda done, total: …)
    python -m clients.developer.evaluation --gateway URL --key K [--json]

Greedy (temperature 0), one line, not streamed, no patience: the policy is measured, not the server. Every moment is
judged by every persona, weighted, so the figure does not depend on who happens to sit where. Where the gateway has a
``TABWISE_TEMPERATURE_OVERRIDE`` for exploration, ask the engine itself: ``gateway_url`` its URL, ``model`` its name.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import orjson
import typer
from pydantic import BaseModel, ConfigDict, Field

from clients.developer.moments import Moment, ask_moments
from clients.developer.persona import DEFAULT_PERSONAS, Persona, load_personas, similarity
from clients.developer.prompts import STOP, fim_prompt, shown_text
from clients.developer.report import percentile
from clients.developer.wire import MODEL
from clients.developer.work import held_out_modules, team_style
from shared.kit.errors import SettingsError

OnEvaluated = Callable[[int, int], None]
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)
_MOMENTS_PER_MODULE = 4
_MAX_TOKENS = 64


class EvaluationConfig(BaseModel):
    """Which moments, asked where. The same ``seed``, ``style`` and ``moments`` are the same set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway_url: str = "http://127.0.0.1:8081"
    key: str = Field(repr=False)
    model: str = MODEL
    """The gateway takes any name; the engine, asked directly, its own (``tabwise``)."""
    style: str = "harbor"
    seed: int = 0
    moments: int = Field(default=200, ge=1)
    concurrency: int = Field(default=8, ge=1)
    personas: tuple[Persona, ...] = Field(default_factory=load_personas, min_length=1)
    reward_accepted: float = 0.75
    reward_rejected: float = -0.25
    reward_silence: float = 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One moment's answer. ``acceptance`` is the weighted share of personas who would have pressed Tab."""

    shown: bool
    exact: bool
    similarity: float
    acceptance: float
    reward: float
    took_s: float


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Means over the answered moments; None where nothing was answered (or shown)."""

    moments: int
    answered: int
    shown: int
    exact: float | None
    """Share of moments at which the shown text equals the rest of the line."""
    acceptance: float | None
    """Accepted of all moments."""
    acceptance_of_shown: float | None
    mean_similarity: float | None
    """Of the shown ones."""
    mean_reward: float | None
    reward_standard_error: float | None
    p50_s: float | None
    wall_s: float
    judged: list[Judged | None] = field(default_factory=list)
    """In the order of the moments; None: the request failed."""
    failed: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The figures without the moments."""
        figures = {name: value for name, value in asdict(self).items() if not isinstance(value, list)}
        return figures | {"failed": len(self.failed)}


def evaluation_moments(seed: int, count: int, style: str) -> list[Moment]:
    """``count`` moments of held-out modules, at most four of each module."""
    rng = random.Random(f"evaluation-{seed}")
    moments: list[Moment] = []
    for module in held_out_modules(rng, team_style(style)):
        moments += ask_moments(module.source, rng, _MOMENTS_PER_MODULE)
        if len(moments) >= count:
            break
    return moments[:count]


def judge(config: EvaluationConfig, moment: Moment, raw: str, took_s: float) -> Judged:
    """What the team would have done with this completion."""
    shown = shown_text(raw, moment.prefix, moment.suffix)
    if not shown:
        return Judged(False, False, 0.0, 0.0, config.reward_silence, took_s)
    weights = math.fsum(p.weight for p in config.personas)
    taken = math.fsum(p.weight for p in config.personas if p.accepts(shown, moment.rest_of_line)) / weights
    reward = taken * config.reward_accepted + (1 - taken) * config.reward_rejected
    exact = shown.rstrip() == moment.rest_of_line.rstrip()
    return Judged(True, exact, similarity(shown, moment.rest_of_line), taken, reward, took_s)


async def evaluate(config: EvaluationConfig, on_progress: OnEvaluated | None = None) -> EvaluationReport:
    """Ask for every moment once. Failed requests are in ``failed`` and in no mean."""
    moments = evaluation_moments(config.seed, config.moments, config.style)
    judged: list[Judged | None] = [None] * len(moments)
    failed: list[str] = []
    started = time.monotonic()
    gate = asyncio.Semaphore(config.concurrency)
    done = 0

    async def one(index: int, http: aiohttp.ClientSession) -> None:
        nonlocal done
        async with gate:
            try:
                judged[index] = await _ask(config, http, moments[index])
            except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError, LookupError) as error:
                failed.append(f"{type(error).__name__}: {error}")
        done += 1
        if on_progress is not None:
            on_progress(done, len(moments))

    async with aiohttp.ClientSession(timeout=_TIMEOUT) as http, asyncio.TaskGroup() as group:
        for index in range(len(moments)):
            group.create_task(one(index, http))
    return _report(judged, failed, time.monotonic() - started)


async def _ask(config: EvaluationConfig, http: aiohttp.ClientSession, moment: Moment) -> Judged:
    body = {
        "model": config.model,
        "prompt": fim_prompt(moment.prefix, moment.suffix),
        "max_tokens": _MAX_TOKENS,
        "temperature": 0,
        "stop": [*STOP, "\n"],
    }
    started = time.monotonic()
    url = f"{config.gateway_url.rstrip('/')}/v1/completions"
    async with http.post(url, headers={"Authorization": f"Bearer {config.key}"}, json=body) as response:
        response.raise_for_status()
        answer = orjson.loads(await response.read())
    return judge(config, moment, answer["choices"][0]["text"], time.monotonic() - started)


def _report(judged: list[Judged | None], failed: list[str], wall_s: float) -> EvaluationReport:
    answered = [j for j in judged if j is not None]
    shown = [j for j in answered if j.shown]
    rewards = [j.reward for j in answered]
    return EvaluationReport(
        moments=len(judged),
        answered=len(answered),
        shown=len(shown),
        exact=_mean([float(j.exact) for j in answered]),
        acceptance=_mean([j.acceptance for j in answered]),
        acceptance_of_shown=_mean([j.acceptance for j in shown]),
        mean_similarity=_mean([j.similarity for j in shown]),
        mean_reward=_mean(rewards),
        reward_standard_error=statistics.stdev(rewards) / math.sqrt(len(rewards)) if len(rewards) > 1 else None,
        p50_s=percentile([j.took_s for j in answered], 50),
        wall_s=wall_s,
        judged=judged,
        failed=failed,
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def main(
    gateway: Annotated[str, typer.Option(help="Base URL of the gateway, without /v1.")] = "http://127.0.0.1:8081",
    key: Annotated[str, typer.Option(envvar="TABWISE_CLIENT_KEY", help="A key of its own, not the team's.")] = ...,  # type: ignore[assignment]
    moments: Annotated[int, typer.Option(help="Size of the evaluation set.")] = 200,
    seed: Annotated[int, typer.Option(help="Which evaluation set.")] = 0,
    model: Annotated[str, typer.Option(help="Model name; `tabwise` where --gateway is the engine itself.")] = MODEL,
    style: Annotated[str, typer.Option(help="The team's style of the house codebase.")] = "harbor",
    personas: Annotated[
        Path, typer.Option(help="YAML file of personas.", show_default="configs/personas.yaml")
    ] = DEFAULT_PERSONAS,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="The report as one line of JSON.")] = False,
) -> None:
    """Ask for a fixed set of held-out moments, greedily, and say what the developers would have accepted."""
    try:
        config = EvaluationConfig(
            gateway_url=gateway,
            key=key,
            model=model,
            style=style,
            seed=seed,
            moments=moments,
            concurrency=concurrency,
            personas=load_personas(personas),
        )
        report = asyncio.run(evaluate(config))
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    if json:
        print(orjson.dumps(report.summary()).decode())
    else:
        for name, value in report.summary().items():
            print(f"{name:24}{value:.3f}" if isinstance(value, float) else f"{name:24}{value}")
    if report.failed:
        print(f"first failure: {report.failed[0]}", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
