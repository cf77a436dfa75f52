"""What there is to type: an endless stream of modules of the team's house codebase.

Developers draw from ``TEAM_SEEDS`` and the evaluation from ``HELD_OUT_SEEDS``; the base model saw neither.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from base_model.house import HELD_OUT_SEEDS, TEAM_SEEDS, Module, Style, generate_module, style_named
from shared.kit.errors import SettingsError


def team_style(name: str) -> Style | None:
    """The style of that name. Raises ``SettingsError`` for an unknown one."""
    try:
        return style_named(name)
    except (KeyError, ValueError) as error:
        raise SettingsError(f"unknown style {name!r} (--style): {error.args[0]}") from error


def team_modules(rng: random.Random, style: Style | None, pool: int | None = None) -> Iterator[Module]:
    """Modules without end. ``pool``: the team has only that many files, the same for every seed."""
    seeds = TEAM_SEEDS if pool is None else TEAM_SEEDS[:pool]
    while True:
        yield generate_module(rng.choice(seeds), style)


def held_out_modules(rng: random.Random, style: Style | None) -> Iterator[Module]:
    """Modules without end that no developer ever types."""
    while True:
        yield generate_module(rng.choice(HELD_OUT_SEEDS), style)
