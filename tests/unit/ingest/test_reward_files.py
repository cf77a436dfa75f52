"""Rewards as files, and what the replay's command says and understands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.ingest import replay
from services.ingest.reward_files import read_reward
from services.ingest.rewards import NamedReward, RewardWeights
from shared.kit.errors import SettingsError

FILES = Path("configs/rewards")
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_default_file_is_the_default() -> None:
    assert read_reward(FILES / "default.yaml").general == NamedReward.of("default", RewardWeights())


def test_every_file_can_be_read_and_has_its_own_name() -> None:
    files = sorted(FILES.glob("*.yaml"))
    assert {read_reward(path).general.name for path in files} == {path.stem for path in files}


def test_a_project_may_differ(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text("name: x\naccepted: 1\nprojects:\n  team-a: {rejected: -0.5}\n")
    rewards = read_reward(path)
    assert rewards.of("team-a").weights == RewardWeights(accepted=1.0, rejected=-0.5)
    assert rewards.of("team-b").weights == RewardWeights(accepted=1.0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "must have a name"),
        ("- a", "must have a name"),
        ("accepted: 1", "name: Field required"),
        ("name: x\nacepted: 1", "acepted: is no reward term"),
        ("name: x\naccepted: [1]", "accepted: Input should be a valid number"),
        ("name: x\nprojects: {a: {length: 5}}", "length: must be less than accepted"),
        ("name: [", "is not YAML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=f"reward.yaml: {sentence}"):
        read_reward(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_reward(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("90m", NOW - timedelta(minutes=90)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T10:00:00+02:00", datetime(2026, 11, 1, 8, tzinfo=UTC)),
    ],
)
def test_since(text: str, moment: datetime) -> None:
    assert replay.parse_since(text, NOW) == moment


@pytest.mark.parametrize("text", ["yesterday", "7", "99999999999d", ""])
def test_since_what(text: str) -> None:
    with pytest.raises(SettingsError, match="--since"):
        replay.parse_since(text, NOW)


def test_a_wrong_command_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["replay", "--reward", "configs/rewards/default.yaml", "--hand-over"])
    with pytest.raises(SystemExit) as caught:
        replay.main()
    assert (caught.value.code, capsys.readouterr().err) == (2, "replay: --hand-over needs --apply: it writes\n")
