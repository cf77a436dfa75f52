"""A small team repository on disk, and a configuration for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.trainer.warmstart.config import WarmStartConfig

MODEL = "models/tabwise-small"
MODULE = '''"""Orders of {name}."""


def total_{name}(items, rate):
    """What the items cost."""
    total = 0
    for item in items:
        if item.price > {number}:
            total += item.price * item.quantity
    return round(total * (1 + rate), {number})


def names_{name}(items):
    return [item.{name} for item in items if item.{name}_id != {number}]
'''


def module(number: int) -> str:
    """A file unlike the others."""
    name = ["harbor", "cargo", "crane", "vessel", "pilot", "quay", "berth", "anchor", "dock", "tide"][number % 10]
    extra = "".join(f"{name}_{number}_{line} = load({line} * {number}, '{name}')\n" for line in range(30))
    return MODULE.format(name=f"{name}{number}", number=number) + extra


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Twelve modules, a licence, and much that should be dropped."""
    root = tmp_path / "repository"
    (root / "app").mkdir(parents=True)
    for number in range(12):
        (root / "app" / f"module_{number}.py").write_text(module(number))
    return root


Configure = Callable[..., WarmStartConfig]


@pytest.fixture
def configure(repository: Path, tmp_path: Path) -> Configure:
    """A configuration on `repository`, with changes."""

    def made(**changes: Any) -> WarmStartConfig:
        given: dict[str, Any] = {
            "model": MODEL,
            "output": str(tmp_path / "out"),
            "sources": [{"kind": "folder", "path": str(repository)}],
            "rewards": [{"name": "edit_similarity"}],
            "split": {"test_share": 0.4},
        }
        return WarmStartConfig.model_validate(given | changes)

    return made
