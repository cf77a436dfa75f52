"""A whole team against a stub of the system: choices, feedback on the wire, reports."""

from __future__ import annotations

import asyncio
import random
from itertools import islice
from typing import Any

import pytest

from base_model.house import TEAM_SEEDS, generate_module
from clients.developer.moments import ask_moments
from clients.developer.persona import Persona
from clients.developer.prompts import fim_prompt
from clients.developer.report import TeamProgress
from clients.developer.team import TeamConfig, run_team
from clients.developer.work import held_out_modules, team_modules, team_style
from shared.kit.errors import SettingsError
from tests.integration.clients.stub import KEY, Stub

KEEN = Persona(name="keen", tolerance=1.0, min_chars=1, read_s=0.2, patience_s=30.0)
WRONG = "self.some_thing_else(entirely)"


class Oracle:
    """Knows every line of the team's files: what stands after a prefix."""

    def __init__(self, pool: int) -> None:
        self.sources = [generate_module(seed, team_style("harbor")).source for seed in TEAM_SEEDS[:pool]]

    def rest(self, prompt: str) -> str:
        prefix = prompt.removeprefix("<|fim_prefix|>").partition("<|fim_suffix|>")[0]
        source = next(source for source in self.sources if source.startswith(prefix))
        return source[len(prefix) :].partition("\n")[0]


def _config(stub: Stub, **changes: Any) -> TeamConfig:
    values: dict[str, Any] = {
        "gateway_url": stub.url,
        "ingest_url": stub.url,
        "key": KEY,
        "developers": 2,
        "speed": 60.0,
        "personas": (KEEN,),
        "modules": 3,
        "events": 12,
    }
    return TeamConfig(**(values | changes))


async def test_right_suggestions_are_accepted_and_reported_at_once() -> None:
    async with Stub(reply=Oracle(3).rest).serve() as stub:
        report = await run_team(_config(stub))
    assert report.stopped_because == "events"
    assert report.events_sent == len(stub.feedback) == len(report.events) >= 12
    assert (report.accepted, report.rejected, report.unreported) == (report.shown, 0, 0)
    assert {seen.path for seen in stub.feedback} == {"/v1/events/continue"}
    asked = {seen.body["prompt"] for seen in stub.completions}
    for seen in stub.feedback:
        data = seen.body["data"]
        assert data["accepted"] is True
        assert data["prompt"] in asked
        assert data["completion"] == Oracle(3).rest(data["prompt"])
    assert [event.index for event in report.events] == list(range(len(report.events)))
    assert all(event.accepted and event.similarity == 1.0 for event in report.events)


async def test_wrong_suggestions_are_rejected_after_ten_simulated_seconds() -> None:
    async with Stub(reply=lambda _: WRONG).serve() as stub:
        report = await run_team(_config(stub, feedback="rlinf", events=6))
    assert report.accepted == 0
    assert report.rejected == report.events_sent == len(stub.feedback) >= 6
    assert {seen.path for seen in stub.feedback} == {"/api/training/submit"}
    asked_at = {seen.body["prompt"]: seen.at for seen in stub.completions}
    for seen in stub.feedback:
        assert seen.body["accepted"] is False
        assert seen.headers["X-Project-ID"] == "default"
        assert seen.at - asked_at[seen.body["prompt"]] >= 10 / 60
    assert report.acceptance_rate == 0.0


async def test_a_distracted_developers_tab_is_a_second_event() -> None:
    late = KEEN.model_copy(update={"distracted": 1.0})
    async with Stub(reply=Oracle(3).rest).serve() as stub:
        report = await run_team(_config(stub, personas=(late,), events=8))
    verdicts: dict[str, list[bool]] = {}
    for seen in stub.feedback:
        verdicts.setdefault(seen.body["data"]["completionId"], []).append(seen.body["data"]["accepted"])
    assert set(map(tuple, verdicts.values())) == {(False, True)}
    assert report.late_accepted == report.accepted == report.shown
    assert report.rejected == 0
    assert report.events_sent == 2 * report.shown


async def test_the_file_reads_as_intended_after_an_accepted_mistake() -> None:
    oracle = Oracle(3)
    sloppy = KEEN.model_copy(update={"tolerance": 0.5})
    async with Stub(reply=lambda prompt: oracle.rest(prompt)[:-1] + "§").serve() as stub:
        report = await run_team(_config(stub, personas=(sloppy,)))
    assert report.accepted > 0
    assert not any("§" in seen.body["prompt"] for seen in stub.completions)


async def test_slow_answers_are_cancelled_and_not_reported() -> None:
    hasty = KEEN.model_copy(update={"patience_s": 0.02})
    async with Stub(reply=lambda _: WRONG, first_delay_s=0.5).serve() as stub:
        report = await run_team(_config(stub, personas=(hasty,), events=None, seconds=1.0))
    assert report.stopped_because == "seconds"
    assert report.cancelled == report.requests > 0
    assert (report.shown, stub.feedback, report.failed) == (0, [], [])


async def test_empty_answers_have_no_event() -> None:
    async with Stub().serve() as stub:
        report = await run_team(_config(stub, events=None, seconds=0.8))
    assert report.empty == report.requests > 0
    assert stub.feedback == []


async def test_failures_are_counted_and_end_the_work() -> None:
    async with Stub(completion_status=500).serve() as stub:
        report = await run_team(_config(stub, give_up_after=5))
    assert report.stopped_because == "failures"
    assert len(report.failed) == report.requests >= 5
    assert all((failure.kind, failure.status) == ("http", 500) for failure in report.failed)


async def test_events_are_sent_once_even_when_they_fail() -> None:
    async with Stub(reply=Oracle(3).rest, feedback_status=503).serve() as stub:
        report = await run_team(_config(stub, events=None, seconds=1.0))
    assert report.events_sent == 0
    assert len(report.events_failed) == len(stub.feedback) == report.shown > 0
    assert report.events_failed[0].status == 503


async def test_the_same_seed_meets_the_same_moments() -> None:
    def prompts(stub: Stub) -> list[str]:
        return [seen.body["prompt"] for seen in stub.completions]

    runs = []
    for seed, delay in ((1, 0.0), (1, 0.02), (2, 0.0)):
        async with Stub(reply=lambda _: WRONG, first_delay_s=delay).serve() as stub:
            await run_team(_config(stub, developers=1, seed=seed, modules=None, events=6, speed=200.0))
            runs.append(prompts(stub))
    shared = min(len(runs[0]), len(runs[1]))
    assert shared >= 6
    assert runs[0][:shared] == runs[1][:shared]
    assert runs[0][0] != runs[2][0]


async def test_stop_lets_running_displays_get_their_event() -> None:
    stop = asyncio.Event()
    async with Stub(reply=lambda _: WRONG).serve() as stub:
        config = _config(stub, events=None, developers=1)
        seen: list[int] = []

        def on_progress(progress: TeamProgress) -> None:
            seen.append(progress.shown)
            if progress.shown:
                stop.set()

        report = await run_team(config, on_progress, stop)
    assert report.stopped_because == "stopped"
    assert report.shown == report.rejected + report.unreported > 0
    assert report.events_sent == report.rejected
    assert seen[-1] == report.shown


async def test_the_report_is_json_without_code() -> None:
    async with Stub(reply=Oracle(3).rest).serve() as stub:
        report = await run_team(_config(stub))
    text = report.to_json().decode()
    assert "fim_prefix" not in text
    assert "return" not in text
    assert KEY not in text
    assert report.summary()["failed"] == 0
    assert report.summary()["first_token_p50_s"] > 0


async def test_an_unknown_style_is_said() -> None:
    with pytest.raises(SettingsError, match="--style"):
        await run_team(TeamConfig(key="k", style="nope"))


def test_team_and_evaluation_never_share_files() -> None:
    rng = random.Random(0)
    style = team_style("harbor")
    team = {module.source for module in islice(team_modules(rng, style), 20)}
    held_out = {module.source for module in islice(held_out_modules(rng, style), 20)}
    assert not team & held_out
    prompts = {fim_prompt(m.prefix, m.suffix) for source in team for m in ask_moments(source, rng)}
    assert len(prompts) > 100
