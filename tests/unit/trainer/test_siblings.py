"""Siblings from an engine that speaks vLLM's formats, with everything that can go wrong."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from services.trainer.metrics import TrainerMetrics
from services.trainer.settings import TrainerSettings
from services.trainer.siblings import SiblingSource, credited_tokens, parse_version, request_body
from shared.contracts.experience import Experience, Sample
from tests.fakes.engine import FakeEngine
from tests.unit.trainer.factories import experience, sample


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(reply="return x\nmore<|endoftext|>") as engine:
        yield engine


@asynccontextmanager
async def source(url: str, **changes: object) -> AsyncIterator[tuple[SiblingSource, TrainerMetrics]]:
    settings = TrainerSettings.model_validate({"engine_urls": url, "group_size": 4} | changes)
    metrics = TrainerMetrics(CollectorRegistry())
    timeout = aiohttp.ClientTimeout(total=settings.sibling_timeout_s)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield SiblingSource(session, settings, metrics), metrics


async def draw(engine: FakeEngine, one: Experience) -> tuple[list[Sample], TrainerMetrics]:
    async with source(engine.url) as (siblings, metrics):
        return await siblings.draw(one), metrics


def failures(metrics: TrainerMetrics, reason: str) -> float:
    return float(metrics.sibling_failures.labels(reason=reason)._value.get())


async def test_fills_the_group_up(engine: FakeEngine) -> None:
    samples, metrics = await draw(engine, experience(siblings=[sample("x")]))
    assert len(samples) == 2
    assert metrics.sibling_draws._value.get() == 2
    assert all(len(one.token_ids) == len(one.logprobs) >= one.credited_tokens for one in samples)


async def test_asks_with_the_recorded_sampling(engine: FakeEngine) -> None:
    one = experience("return total")
    await draw(engine, one)
    [body] = engine.requests
    assert body["prompt"] == one.prompt_token_ids
    assert (body["n"], body["temperature"], body["max_tokens"], body["top_p"]) == (3, 0.8, 16, 1.0)
    assert body["stop"] == ["```", "\n"]
    assert "seed" not in body


async def test_a_single_line_is_credited_up_to_its_end(engine: FakeEngine) -> None:
    samples, _ = await draw(engine, experience("return total"))
    assert {(one.text, one.credited_tokens, len(one.token_ids)) for one in samples} == {("return x", 8, 9)}


async def test_several_lines_are_credited_with_their_end_token(engine: FakeEngine) -> None:
    samples, _ = await draw(engine, experience("if x:\n    y"))
    assert {(one.text, one.credited_tokens) for one in samples} == {("return x\nmore", 14)}


async def test_knows_who_sampled(engine: FakeEngine) -> None:
    samples, _ = await draw(engine, experience())
    assert {one.policy_version for one in samples} == {0}
    engine.weight_version = "17"
    samples, _ = await draw(engine, experience())
    assert {one.policy_version for one in samples} == {17}


@pytest.mark.parametrize("value", [None, float("nan")])
async def test_bad_logprobs_are_dropped_and_counted(engine: FakeEngine, value: float | None) -> None:
    engine.faults.logprob = value
    samples, metrics = await draw(engine, experience())
    assert samples == []
    assert failures(metrics, "bad_logprobs") == 3


async def test_an_unknown_policy_version_is_dropped_and_counted(engine: FakeEngine) -> None:
    engine.faults.stamp = False
    samples, metrics = await draw(engine, experience())
    assert (samples, failures(metrics, "no_policy_version")) == ([], 3)


async def test_an_ill_engine_costs_the_siblings_only(engine: FakeEngine) -> None:
    engine.faults.status = 503
    samples, metrics = await draw(engine, experience())
    assert (samples, failures(metrics, "http_503")) == ([], 3)


async def test_an_engine_that_is_away_costs_the_siblings_only() -> None:
    async with source("http://127.0.0.1:9") as (siblings, metrics):
        assert await siblings.draw_all([experience(), experience()]) == [[], []]
        assert failures(metrics, "engine_away") == 6


async def test_a_slow_engine_costs_the_siblings_only(engine: FakeEngine) -> None:
    engine.faults.first_token_delay_s = 5
    async with source(engine.url, sibling_timeout_s=0.2) as (siblings, metrics):
        assert await siblings.draw(experience()) == []
        assert failures(metrics, "timeout") == 3


async def test_replicas_take_turns(engine: FakeEngine) -> None:
    with FakeEngine(reply="y<|endoftext|>") as other:
        async with source(f"{engine.url}, {other.url}/") as (siblings, _):
            drawn = await siblings.draw_all([experience(), experience(), experience(), experience()])
    assert [len(group) for group in drawn] == [3, 3, 3, 3]
    assert (len(engine.requests), len(other.requests)) == (2, 2)


async def test_a_group_of_one_asks_nobody() -> None:
    async with source("http://127.0.0.1:9", group_size=1) as (siblings, metrics):
        assert await siblings.draw(experience()) == []
        assert metrics.sibling_draws._value.get() == 0


@pytest.mark.parametrize(
    ("offsets", "text", "seen", "stopped", "credited"),
    [
        ([0, 2, 4], "abcd", "abcd", True, 3),
        ([0, 2, 4], "abcd", "abcd", False, 2),
        ([0, 2, 4], "ab\nd", "ab", True, 1),
        ([0, 1, 4], "ab\nd", "ab", True, 2),
        ([0], "", "", True, 1),
        ([0], "", "", False, 0),
        ([0, 2, 4, 5], "abcd", "abcd", True, 3),
    ],
    ids=["whole", "cut off by length", "first line", "straddling token", "silence", "nothing yet", "long stop string"],
)
def test_credit(offsets: list[int], text: str, seen: str, stopped: bool, credited: int) -> None:
    assert credited_tokens(offsets, text, seen, stopped=stopped) == credited


@pytest.mark.parametrize(("stamp", "version"), [("default", 0), ("17", 17), (None, None), ("x", None), ("", None)])
def test_stamps(stamp: str | None, version: int | None) -> None:
    assert parse_version(stamp) == version


def test_an_own_temperature_for_siblings() -> None:
    settings = TrainerSettings(sibling_temperature=1.0)
    assert request_body(experience(), settings, 3)["temperature"] == 1.0
    assert math.isclose(request_body(experience(), TrainerSettings(), 3)["temperature"], 0.8)
