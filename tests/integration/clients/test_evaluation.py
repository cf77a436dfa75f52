"""The evaluation set: fixed, held out, and judged as the developers would."""

from __future__ import annotations

import json

import pytest

from clients.developer.evaluation import EvaluationConfig, evaluate, evaluation_moments, judge
from clients.developer.moments import Moment
from clients.developer.persona import Persona
from clients.developer.prompts import fim_prompt
from tests.integration.clients.stub import KEY, Stub

STRICT = Persona(name="strict", weight=1, tolerance=1.0, min_chars=1)
LOOSE = Persona(name="loose", weight=3, tolerance=0.8, min_chars=1)
MOMENT = Moment("def f():\n    ", "\n", "return total", 1, 4, "f", "typing", "start")
CONFIG = EvaluationConfig(key=KEY, personas=(STRICT, LOOSE), moments=12, seed=3)


def test_the_set_is_fixed_by_its_seed() -> None:
    assert evaluation_moments(3, 12, "harbor") == evaluation_moments(3, 12, "harbor")
    assert evaluation_moments(3, 12, "harbor") != evaluation_moments(4, 12, "harbor")
    assert evaluation_moments(3, 50, "harbor")[:12] == evaluation_moments(3, 12, "harbor")


@pytest.mark.parametrize(
    ("raw", "shown", "acceptance", "reward"),
    [
        ("return total", True, 1.0, 0.75),
        ("return totals\nmore", True, 0.75, 0.5),
        ("raise KeyError(x)", True, 0.0, -0.25),
        ("", False, 0.0, 0.0),
        ("\n", False, 0.0, 0.0),
    ],
)
def test_a_moment_is_judged_by_every_persona(raw: str, shown: bool, acceptance: float, reward: float) -> None:
    judged = judge(CONFIG, MOMENT, raw, 0.1)
    assert (judged.shown, judged.acceptance) == (shown, acceptance)
    assert judged.reward == pytest.approx(reward)


async def test_a_perfect_model_gets_the_whole_reward() -> None:
    rests = {fim_prompt(m.prefix, m.suffix): m.rest_of_line for m in evaluation_moments(3, 12, "harbor")}
    seen = []
    async with Stub(reply=lambda prompt: rests[prompt]).serve() as stub:
        config = CONFIG.model_copy(update={"gateway_url": stub.url})
        report = await evaluate(config, lambda done, total: seen.append((done, total)))
    assert (report.exact, report.acceptance, report.mean_reward) == (1.0, 1.0, 0.75)
    assert (report.answered, report.reward_standard_error) == (12, 0.0)
    assert seen == [(n, 12) for n in range(1, 13)]
    body = stub.completions[0].body
    assert (body["temperature"], body.get("stream"), body["stop"][-1]) == (0, None, "\n")
    assert stub.feedback == []
    assert json.loads(json.dumps(report.summary()))["mean_reward"] == 0.75


async def test_a_silent_model_gets_nothing() -> None:
    async with Stub().serve() as stub:
        report = await evaluate(CONFIG.model_copy(update={"gateway_url": stub.url}))
    assert (report.shown, report.mean_reward, report.acceptance, report.acceptance_of_shown) == (0, 0.0, 0.0, None)


async def test_failures_are_in_no_mean() -> None:
    async with Stub(completion_status=503).serve() as stub:
        report = await evaluate(CONFIG.model_copy(update={"gateway_url": stub.url}))
    assert (report.answered, report.mean_reward, len(report.failed)) == (0, None, 12)
    assert "503" in report.failed[0]
