"""A user's own package: a distribution on `sys.path` that declares an entry point, as an installed one does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from services.trainer.warmstart.rewards.mix import RewardMix, RewardSpec
from services.trainer.warmstart.rewards.registry import known_rewards, make_reward
from shared.kit.errors import SettingsError
from tests.unit.trainer.warmstart.rewards.builders import candidate

MODULE = '''
class Short:
    """Half for more than `limit` characters."""

    def __init__(self, options):
        self.limit = int(options.get("limit", 3))
        if self.limit < 1:
            raise ValueError("limit must be at least 1")

    async def __call__(self, candidates):
        return [1.0 if len(c.completion) <= self.limit else 0.5 for c in candidates]

NOT_CALLABLE = 3
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("team_rewards")]:
        del sys.modules[name]


def install(site: Path, points: str, name: str = "team-rewards", module: str = MODULE) -> None:
    """What pip leaves behind."""
    (site / "team_rewards.py").write_text(module)
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[tabwise.rewards]\n{points}\n")
    invalidate_caches()


async def test_a_package_of_ones_own_is_found(site: Path) -> None:
    install(site, "short = team_rewards:Short")
    assert "short" in known_rewards()
    mix = RewardMix.of([RewardSpec(name="short", options={"limit": 2})])
    assert await mix([candidate("ab"), candidate("abc")]) == [1.0, 0.5]


def test_its_options_are_its_own_affair(site: Path) -> None:
    install(site, "short = team_rewards:Short")
    with pytest.raises(SettingsError, match=r"rewards\[1\].options: limit must be at least 1"):
        make_reward("short", {"limit": 0}, "rewards[1]")


def test_one_that_cannot_be_imported_is_named(site: Path) -> None:
    install(site, "short = team_rewards:Short", module="import nothing_of_that_name")
    with pytest.raises(
        SettingsError, match=r"team_rewards:Short of team-rewards cannot be loaded .ModuleNotFoundError"
    ):
        make_reward("short", {}, "rewards[0]")


def test_one_that_is_not_a_factory_is_named(site: Path) -> None:
    install(site, "short = team_rewards:NOT_CALLABLE")
    with pytest.raises(SettingsError, match="team_rewards:NOT_CALLABLE of team-rewards is not callable"):
        make_reward("short", {}, "rewards[0]")


def test_the_name_of_a_built_in_one_cannot_be_taken(site: Path) -> None:
    install(site, "syntax = team_rewards:Short")
    with pytest.raises(SettingsError, match="several rewards are named 'syntax'"):
        make_reward("syntax", {}, "rewards[0]")


def test_nor_can_two_packages_share_one(site: Path) -> None:
    install(site, "short = team_rewards:Short")
    install(site, "short = team_rewards:NOT_CALLABLE", name="other-rewards")
    with pytest.raises(SettingsError, match=r"several rewards are named 'short' \(.*of team-rewards.*\); rename one"):
        make_reward("short", {}, "rewards[0]")
