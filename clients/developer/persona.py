"""Who types: habits and taste, read from a file of personas.

In: ``configs/personas.yaml`` or a file of the same shape. Out: ``Persona`` values, and the one rule by which a
suggestion is accepted. The tolerance is part of the file and is stated, not tuned.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rapidfuzz.distance import Levenshtein

from shared.kit.errors import SettingsError

DEFAULT_PERSONAS = Path(__file__).parents[2] / "configs" / "personas.yaml"
_SPREAD = 0.3
"""Sigma of the log-normal variation of times around a persona's median."""


class Persona(BaseModel):
    """One kind of developer. Times are simulated seconds, but for ``patience_s``, which is real."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    weight: float = Field(default=1.0, gt=0)
    chars_per_s: float = Field(default=5.0, gt=0)
    patience_s: float = Field(default=1.5, gt=0)
    read_s: float = Field(default=0.7, ge=0)
    tolerance: float = Field(default=0.9, ge=0, le=1)
    min_chars: int = Field(default=3, ge=1)
    distracted: float = Field(default=0.0, ge=0, le=1)
    distracted_s: float = Field(default=12.0, ge=0)
    feedback: Literal["continue", "rlinf"] = "continue"

    def accepts(self, shown: str, wanted: str) -> bool:
        """Whether they press Tab: long enough for their taste, and close enough to what they were about to type."""
        return len(shown.strip()) >= self.min_chars and similarity(shown, wanted) >= self.tolerance

    def draw_patience_s(self, rng: random.Random) -> float:
        """Real seconds that they wait for this suggestion."""
        return self.patience_s * rng.lognormvariate(0, _SPREAD)

    def draw_reading_s(self, rng: random.Random) -> float:
        """Simulated seconds until they decide about this suggestion."""
        reading_s = self.read_s * rng.lognormvariate(0, _SPREAD)
        return reading_s + (self.distracted_s if rng.random() < self.distracted else 0.0)


class _PersonaFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    personas: tuple[Persona, ...] = Field(min_length=1)


def similarity(shown: str, wanted: str) -> float:
    """1 - Levenshtein distance / length of the longer text, trailing blanks aside. 1.0 is equal."""
    return float(Levenshtein.normalized_similarity(shown.rstrip(), wanted.rstrip()))


def load_personas(path: Path = DEFAULT_PERSONAS) -> tuple[Persona, ...]:
    """The personas of a YAML file. Raises ``SettingsError`` that says what is wrong with it."""
    try:
        content = yaml.safe_load(path.read_text())
        return _PersonaFile.model_validate(content).personas
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"the personas file {path} cannot be read (--personas): {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"the personas file {path} (--personas) is wrong at {where}: {first['msg']}") from error


def assign(personas: Sequence[Persona], count: int) -> list[Persona]:
    """``count`` developers, their personas in proportion to the weights; the same for every seed."""
    total = math.fsum(p.weight for p in personas)
    given = [0] * len(personas)
    team: list[Persona] = []
    for n in range(1, count + 1):
        short = [p.weight / total * n - got for p, got in zip(personas, given, strict=True)]
        chosen = short.index(max(short))
        given[chosen] += 1
        team.append(personas[chosen])
    return team
