"""Several rewards as one: a weighted sum that the YAML file describes.

In: `rewards: [{name: edit_similarity, weight: 0.5, options: {…}}, …]`, then candidates. Out: `Scores`.

A part that is unknown for all samples of a place (no grammar for the language, no tests) is left out there and the
other weights are scaled up. A part that is unknown for some of them only makes the whole of those unknown: samples of
one place are compared with each other, and must be measured with one measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from services.trainer.warmstart.rewards.options import Options
from services.trainer.warmstart.rewards.protocol import Candidate, Counting, Reward
from services.trainer.warmstart.rewards.registry import make_reward
from services.trainer.warmstart.rewards.together import together
from shared.kit.errors import SettingsError, TabwiseError


class RewardError(TabwiseError):
    """A reward broke its contract; the message names it."""


class RewardSpec(Options):
    """One entry of `rewards:` in the YAML file."""

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    options: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scores:
    """Of N candidates, in order."""

    total: list[float | None]
    """Weighted sums, 0 to the sum of the weights; None: unknown, to be masked out."""
    parts: Mapping[str, list[float | None]]
    """Before weighting, by the name of the reward."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What rewards have counted since the start: `llm_judge_unparsable`, …."""

    def figures(self) -> dict[str, float]:
        """For the log of a round: mean and share of the known, of the whole and of each part, and the counts."""
        columns = {"total": self.total, **self.parts}
        means = [_figures(f"reward/{name}", column) for name, column in columns.items()]
        counts = {f"reward/{name}": float(count) for name, count in self.counts.items()}
        return {key: value for figures in (*means, counts) for key, value in figures.items()}


class RewardMix:
    """A `Reward` itself; `score` tells the parts too."""

    def __init__(self, rewards: Mapping[str, tuple[float, Reward]]) -> None:
        """Name → weight and reward."""
        self._rewards = dict(rewards)

    @classmethod
    def of(cls, specs: Sequence[RewardSpec]) -> RewardMix:
        """From the YAML file. Raises `SettingsError`: one sentence that names the entry."""
        if not specs:
            raise SettingsError("rewards: name at least one, such as {name: edit_similarity, weight: 1}")
        rewards: dict[str, tuple[float, Reward]] = {}
        for index, spec in enumerate(specs):
            reward = make_reward(spec.name, spec.options, f"rewards[{index}]")
            rewards[_free_name(spec.name, rewards)] = (spec.weight, reward)
        return cls(rewards)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """The totals."""
        return (await self.score(candidates)).total

    async def score(self, candidates: Sequence[Candidate]) -> Scores:
        """Ask all rewards at once. Raises `RewardError`."""
        columns = await together(_ask(name, reward, candidates) for name, (_, reward) in self._rewards.items())
        weights = [weight for weight, _ in self._rewards.values()]
        parts = dict(zip(self._rewards, columns, strict=True))
        return Scores(weighted(candidates, weights, columns), parts, self._counts())

    def _counts(self) -> dict[str, int]:
        return {
            f"{name}_{what}": count
            for name, (_, reward) in self._rewards.items()
            if isinstance(reward, Counting)
            for what, count in reward.counts.items()
        }


def weighted(
    candidates: Sequence[Candidate], weights: Sequence[float], parts: Sequence[Sequence[float | None]]
) -> list[float | None]:
    """Totals [N] of parts [K][N]. Pure."""
    told: dict[tuple[str, str, str], set[int]] = {}
    for at, candidate in enumerate(candidates):
        told.setdefault(_place(candidate), set()).update(k for k, part in enumerate(parts) if part[at] is not None)
    return [_total(at, sorted(told[_place(c)]), weights, parts) for at, c in enumerate(candidates)]


def _place(candidate: Candidate) -> tuple[str, str, str]:
    return candidate.path, candidate.prompt_prefix, candidate.prompt_suffix


def _total(
    at: int, told: Sequence[int], weights: Sequence[float], parts: Sequence[Sequence[float | None]]
) -> float | None:
    """Of one candidate, over the parts that are `told` at its place."""
    values = [parts[k][at] for k in told]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    scale = sum(weights) / sum(weights[k] for k in told)
    return scale * sum(weights[k] * value for k, value in zip(told, known, strict=True))


async def _ask(name: str, reward: Reward, candidates: Sequence[Candidate]) -> list[float | None]:
    try:
        values = list(await reward(candidates))
    except TabwiseError:
        raise
    except Exception as error:
        raise RewardError(f"reward {name} failed: {type(error).__name__}: {error}") from error
    if len(values) != len(candidates):
        raise RewardError(f"reward {name} gave {len(values)} values for {len(candidates)} candidates")
    if wrong := [value for value in values if value is not None and not 0 <= value <= 1]:
        raise RewardError(f"reward {name} gave {wrong[0]}; it must be 0 to 1, or None where it cannot be told")
    return values


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """The name, numbered where the same reward is used twice with other options."""
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _figures(name: str, column: Sequence[float | None]) -> dict[str, float]:
    known = [value for value in column if value is not None]
    shares = {f"{name}_known_share": len(known) / len(column)} if column else {}
    return shares | ({f"{name}_mean": math.fsum(known) / len(known)} if known else {})
