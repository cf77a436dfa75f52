"""Name → reward. Built-in ones are imported when they are asked for; others come from installed packages.

In: a name and options from YAML. Out: a `Reward`, or a `SettingsError` whose sentence lists the known names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from pydantic import ValidationError

from services.trainer.warmstart.rewards.protocol import Reward, RewardFactory
from shared.kit.errors import SettingsError

GROUP: Final = "tabwise.rewards"
"""Entry-point group: a package that declares one here is found once it is installed."""

_HERE = "services.trainer.warmstart.rewards"
BUILT_IN: Final[Mapping[str, str]] = {
    "exact_match": f"{_HERE}.text:ExactMatch",
    "edit_similarity": f"{_HERE}.text:EditSimilarity",
    "syntax": f"{_HERE}.syntax:Syntax",
    "unit_tests": f"{_HERE}.unit_tests:UnitTests",
    "llm_judge": f"{_HERE}.judge:Judge",
}


def known_rewards() -> list[str]:
    """Names that `make_reward` takes, in order."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def make_reward(name: str, options: Mapping[str, Any], where: str) -> Reward:
    """Build it. `where` in the YAML file it is asked for, for the sentence of the `SettingsError`."""
    factory = _factory(name, where)
    try:
        return factory(options)
    except ValidationError as error:
        raise SettingsError(f"{where}.options{_first_problem(error)}") from None
    except ValueError as error:
        raise SettingsError(f"{where}.options: {error}") from None


def _factory(name: str, where: str) -> RewardFactory:
    points = tuple(entry_points(group=GROUP, name=name))
    if name in BUILT_IN:
        points = (*points, EntryPoint(name, BUILT_IN[name], GROUP))
    if not points:
        raise SettingsError(f"{where}: there is no reward {name!r}; known are {', '.join(known_rewards())}")
    if len({point.value for point in points}) > 1:
        raise SettingsError(
            f"{where}: several rewards are named {name!r} ({', '.join(map(_origin, points))}); rename one"
        )
    return _load(points[0], where)


def _load(point: EntryPoint, where: str) -> RewardFactory:
    """A plug-in's import may raise anything."""
    try:
        factory = point.load()
    except Exception as error:
        raise SettingsError(f"{where}: {_origin(point)} cannot be loaded ({type(error).__name__}: {error})") from error
    if not callable(factory):
        raise SettingsError(f"{where}: {_origin(point)} is not callable; it must take options and return a reward")
    return factory  # type: ignore[no-any-return]


def _origin(point: EntryPoint) -> str:
    return f"{point.value} of {point.dist.name}" if point.dist else f"{point.value} of Tabwise"


def _first_problem(error: ValidationError) -> str:
    """`.field: what is wrong with it`, without its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    path = "".join(f".{part}" for part in first["loc"])
    return f"{path}: {first['msg'].removeprefix('Value error, ')}"
