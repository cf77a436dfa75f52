from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.sampling import make_sampling
from services.gateway.settings import Exploration, GatewaySettings

EXPLORED = '{"team-a": {"temperature": 0.5, "full_support": true}, "team-b": {"full_support": true}}'


@pytest.mark.parametrize(
    ("project", "override", "asked", "sampled"),
    [
        ("team-a", None, 0.01, 0.5),
        ("team-a", 0.9, 0.01, 0.5),
        ("team-a", None, 0, 0),
        ("team-b", None, 0.01, 0.01),
        ("team-b", 0.9, 0.01, 0.9),
        ("other", None, 0.2, 0.2),
        ("other", 0.9, 0, 0),
    ],
)
def test_whose_temperature_counts(project: str, override: float | None, asked: float, sampled: float) -> None:
    settings = GatewaySettings.model_validate({"exploration": EXPLORED, "temperature_override": override})

    assert make_sampling(settings, project, temperature=asked).temperature == sampled


def test_full_support_leaves_every_token_its_chance() -> None:
    settings = GatewaySettings.model_validate({"exploration": EXPLORED})
    asked: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 40}

    assert make_sampling(settings, "team-b", **asked).full_support
    assert not make_sampling(settings, "other", **asked).full_support


@pytest.mark.parametrize("value", ["{", "[]", '{"a": {"temprature": 1}}', '{"a": {"temperature": -1}}', '{"a": 5}'])
def test_a_wrong_setting_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_EXPLORATION", value)

    with pytest.raises(ValidationError) as caught:
        GatewaySettings()

    assert caught.value.errors()[0]["loc"][0] == "exploration"


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_EXPLORATION", EXPLORED)
    monkeypatch.setenv("TABWISE_MODEL_ALIASES", "qwen2.5-coder, codestral-latest,, tabwise")

    settings = GatewaySettings()

    assert settings.exploration["team-a"] == Exploration(temperature=0.5, full_support=True)
    assert settings.model_names == ["tabwise", "qwen2.5-coder", "codestral-latest"]
    monkeypatch.setenv("TABWISE_EXPLORATION", "")
    assert GatewaySettings().exploration == {}


@pytest.mark.parametrize(
    "wrong", [{"fim_template": "gpt"}, {"chat_url": "host:80"}, {"ingest_url": "ftp://x"}, {"chars_per_token": 0}]
)
def test_other_wrong_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GatewaySettings(**wrong)
