"""All that a reward plug-in has to know. Produced by the warm start, consumed by every reward.

A plug-in is a factory: it takes the options from the YAML file, checks them, and returns a `Reward`. A class whose
`__init__` takes the options is one. How to publish it: docs/rewards.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class Candidate:
    """One sampled completion and the place that it is for."""

    prompt_prefix: str
    """The file before the hole. All of it, as far as the sample has it: rewards that parse or run the file need it."""
    prompt_suffix: str
    """The file after the hole."""
    reference: str
    """What stands in the hole in the repository."""
    completion: str
    """What the model put there; without special tokens."""
    language: str
    """In lower case as in `python`, `typescript`; empty where it isn't known."""
    path: str
    """Of the file, relative to its repository or data set."""

    @property
    def file(self) -> str:
        """The file with the completion in place."""
        return self.prompt_prefix + self.completion + self.prompt_suffix

    @property
    def reference_file(self) -> str:
        """The file as it is in the repository."""
        return self.prompt_prefix + self.reference + self.prompt_suffix


class Reward(Protocol):
    """Scores completions."""

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """One value per candidate, in order: 0 (worthless) to 1, or None where it cannot be told; never a guess.

        Called with a mini-batch at a time, one call after another. How many things run at once inside is the
        reward's own business, and bounded. An exception ends the warm start (which resumes where it stopped).
        """


@runtime_checkable
class Counting(Protocol):
    """A reward that also counts what happened; the counts are in the log of each round."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Since the start, by name."""


RewardFactory = Callable[[Mapping[str, Any]], Reward]
"""From the `options` of the YAML file. Wrong ones: `ValueError` (pydantic's `ValidationError` is one)."""
