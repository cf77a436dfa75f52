"""The small test client, step by step, against a stub of the system."""

from __future__ import annotations

import asyncio

import httpx
import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from clients.check.__main__ import main
from clients.check.steps import Check, Step, Target
from clients.developer.wire import FeedbackFormat
from tests.integration.clients.stub import KEY, Stub

STEPS = [
    "gateway reachable", "gateway ready", "key accepted", "completion streamed", "ingest reachable", "ingest ready",
    "feedback stored", "same event again",
]  # fmt: skip


async def _check(stub: Stub, key: str = KEY, form: FeedbackFormat = "continue", ingest: str = "") -> dict[str, Step]:
    def run() -> list[Step]:
        with httpx.Client(timeout=5) as http:
            return list(Check(Target(stub.url, ingest or stub.url, key, form=form), http).steps())

    steps = await asyncio.to_thread(run)
    assert [step.name for step in steps] == STEPS
    return {step.name: step for step in steps}


@pytest.mark.parametrize(("form", "path"), [("continue", "/v1/events/continue"), ("rlinf", "/api/training/submit")])
async def test_all_is_well(form: FeedbackFormat, path: str) -> None:
    async with Stub(reply=lambda _: "a + b\n").serve() as stub:
        steps = await _check(stub, form=form)
    assert {step.status for step in steps.values()} == {"ok"}
    assert "tabwise" in steps["key accepted"].detail
    assert "'a + b'" in steps["completion streamed"].detail
    assert "rejection" in steps["feedback stored"].detail
    assert [seen.path for seen in stub.feedback] == [path, path]
    assert stub.feedback[0].body == stub.feedback[1].body
    data = stub.feedback[0].body.get("data", stub.feedback[0].body)
    assert (data["completion"], data["accepted"]) == ("a + b", False)
    assert data["prompt"] == stub.completions[0].body["prompt"]


async def test_a_wrong_key_is_named() -> None:
    async with Stub().serve() as stub:
        steps = await _check(stub, key="wrong")
    assert steps["key accepted"].status == "failed"
    assert "TABWISE_API_KEYS" in steps["key accepted"].hint
    assert steps["completion streamed"].status == steps["feedback stored"].status == "skipped"


async def test_a_part_that_is_not_ready_gives_its_reason() -> None:
    async with Stub(ready=False, completion_status=503).serve() as stub:
        steps = await _check(stub)
    assert "no engine answers" in steps["gateway ready"].detail
    assert (steps["completion streamed"].status, steps["feedback stored"].status) == ("failed", "skipped")
    assert "the engine is away" in steps["completion streamed"].detail


async def test_an_absent_ingest_is_told_apart_from_the_gateway() -> None:
    async with Stub(reply=lambda _: "a + b").serve() as stub:
        steps = await _check(stub, ingest="http://127.0.0.1:9")
    assert steps["completion streamed"].status == "ok"
    assert (steps["ingest reachable"].status, steps["feedback stored"].status) == ("failed", "skipped")


async def test_a_broken_stream_is_a_failure() -> None:
    async with Stub(reply=lambda _: "a + b", without_done=True).serve() as stub:
        steps = await _check(stub)
    assert "[DONE]" in steps["completion streamed"].detail


async def test_an_error_in_mid_stream_is_a_failure() -> None:
    async with Stub(reply=lambda _: "a + b", error_after_chunks=1).serve() as stub:
        steps = await _check(stub)
    assert "EngineCore died" in steps["completion streamed"].detail


async def test_a_silent_model_is_no_failure() -> None:
    async with Stub().serve() as stub:
        steps = await _check(stub)
    assert len(stub.completions) == 3
    assert "silent" in steps["completion streamed"].detail
    assert (steps["completion streamed"].status, steps["feedback stored"].status) == ("ok", "skipped")


async def test_refused_feedback_is_a_failure() -> None:
    async with Stub(reply=lambda _: "a + b", feedback_status=503).serve() as stub:
        steps = await _check(stub)
    assert "the database is away" in steps["feedback stored"].detail
    assert len(stub.feedback) == 1


async def test_the_command_prints_steps_and_its_exit_status_tells() -> None:
    async with Stub(reply=lambda _: "a + b").serve() as stub:
        good = await _command(f"{stub.url}/v1", stub.url, KEY)
        bad = await _command(stub.url, stub.url, "wrong")
        lines = (await _command(stub.url, stub.url, KEY, "--json")).output.splitlines()
    assert good.exit_code == 0, good.output
    assert "Everything that was tried works." in good.output
    assert bad.exit_code == 1
    assert "hint: use one of the keys in TABWISE_API_KEYS" in bad.output
    assert [orjson.loads(line)["name"] for line in lines] == STEPS


async def _command(gateway: str, ingest: str, key: str, *flags: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    arguments = ["--gateway", gateway, "--ingest", ingest, "--key", key, *flags]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, arguments))
