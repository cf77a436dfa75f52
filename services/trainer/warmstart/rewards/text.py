"""Rewards that compare the completion with what stands in the repository: `exact_match`, `edit_similarity`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from rapidfuzz.distance import Levenshtein

from services.trainer.warmstart.rewards.options import Options
from services.trainer.warmstart.rewards.protocol import Candidate


class ExactMatchOptions(Options):
    """Of `exact_match`."""

    strip: bool = True
    """White space at both ends does not count."""
    first_line: bool = False
    """Compare up to the first line break only, as an editor that shows one line."""


class ExactMatch:
    """1 where the completion is the reference, else 0."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = ExactMatchOptions.model_validate(options)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """See `Reward`. Always known."""
        return [float(self._read(c.completion) == self._read(c.reference)) for c in candidates]

    def _read(self, text: str) -> str:
        return _read(text, strip=self._options.strip, first_line=self._options.first_line)


class EditSimilarityOptions(Options):
    """Of `edit_similarity`."""

    strip: bool = True
    first_line: bool = False
    power: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The similarity is raised to this: above 1 it asks for more likeness."""


class EditSimilarity:
    """(1 - Levenshtein distance / length of the longer text) ^ power (Levenshtein 1966; computed by rapidfuzz)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = EditSimilarityOptions.model_validate(options)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """See `Reward`. Always known."""
        return [self._similarity(c) for c in candidates]

    def _similarity(self, candidate: Candidate) -> float:
        options = self._options
        texts = (
            _read(text, strip=options.strip, first_line=options.first_line)
            for text in (candidate.completion, candidate.reference)
        )
        return math.pow(Levenshtein.normalized_similarity(*texts), options.power)


def _read(text: str, *, strip: bool, first_line: bool) -> str:
    """The part of a text that is compared."""
    if first_line:
        text = text.partition("\n")[0]
    return text.strip() if strip else text
