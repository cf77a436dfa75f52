"""The team's and the evaluation's command lines, as subprocesses."""

from __future__ import annotations

import asyncio
import signal
import sys

import orjson

from tests.integration.clients.stub import KEY, Stub

TEAM = "clients.developer"
EVALUATION = "clients.developer.evaluation"


async def _start(module: str, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdout=pipe, stderr=pipe)


def _team(stub: Stub, *more: str) -> list[str]:
    where = ["--gateway", stub.url, "--ingest", stub.url, "--key", KEY]
    return [*where, "--developers", "2", "--speed", "100", *more]


async def test_team_prints_its_report_as_json() -> None:
    async with Stub(reply=lambda _: "nonsense(1)").serve() as stub:
        process = await _start(TEAM, *_team(stub, "--events", "3", "--feedback", "rlinf", "--json"))
        out, err = await process.communicate()
    assert process.returncode == 0, err
    report = orjson.loads(out)
    assert report["events_sent"] == len(report["events"]) == len(stub.feedback) >= 3
    assert {event["form"] for event in report["events"]} == {"rlinf"}


async def test_interrupted_team_still_sends_what_is_due() -> None:
    async with Stub(reply=lambda _: "nonsense(1)").serve() as stub:
        process = await _start(TEAM, *_team(stub))
        async with asyncio.timeout(30):
            while not stub.completions:
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"stopped because: stopped" in out
    assert stub.feedback


async def test_failures_are_the_exit_status() -> None:
    async with Stub(completion_status=500).serve() as stub:
        process = await _start(TEAM, *_team(stub, "--seconds", "1"))
        out, _ = await process.communicate()
    assert process.returncode == 1
    assert b"first failed completion: http 500" in out


async def test_evaluation_prints_its_figures() -> None:
    async with Stub().serve() as stub:
        process = await _start(EVALUATION, "--gateway", stub.url, "--key", KEY, "--moments", "5", "--json")
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert orjson.loads(out)["mean_reward"] == 0.0
