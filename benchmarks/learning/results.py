"""One file for each algorithm and seed, written when it is whole: a stopped benchmark goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from shared.kit.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Point:
    """The fixed set after so many events. `greedy`, `sampled`: fields of `evaluation.Measured`."""

    events: int
    greedy: dict[str, float]
    sampled: dict[str, float]
    kl: float
    """To the base model, nats per token, sampled at the serving temperature."""


@dataclass(frozen=True, slots=True)
class Result:
    """One algorithm with one seed."""

    algorithm: str
    seed: int
    points: list[Point]
    counts: dict[str, int]
    seconds: float


class Results:
    """The output folder. Results of other settings than `settings` are refused, not mixed in."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, algorithm: str, seed: int) -> Result | None:
        """None: still to be run."""
        found = self._read(self._path(f"{algorithm}-seed{seed}"))
        if found is None:
            return None
        points = [Point(**point) for point in found.pop("points")]
        return Result(points=points, **found)

    def save(self, result: Result) -> None:
        """Whole or not at all."""
        self._write(self._path(f"{result.algorithm}-seed{result.seed}"), asdict(result))

    def base_point(self) -> Point | None:
        """The measurement of the base model, the same for all."""
        found = self._read(self._path("base"))
        return Point(**found) if found else None

    def save_base_point(self, point: Point) -> None:
        """See `base_point`."""
        self._write(self._path("base"), asdict(point))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        if not path.is_file():
            return None
        found: dict[str, Any] = orjson.loads(path.read_bytes())
        if found.pop("settings") != self._settings:
            raise SettingsError(f"{path} was made with other settings; choose another --out, or delete it")
        return found

    def _write(self, path: Path, value: dict[str, Any]) -> None:
        draft = path.with_suffix(".tmp")
        draft.write_bytes(orjson.dumps({"settings": self._settings, **value}, option=orjson.OPT_INDENT_2))
        draft.rename(path)
