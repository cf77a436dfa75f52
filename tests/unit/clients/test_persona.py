"""Taste, tolerance and the file of personas."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from clients.developer.persona import Persona, assign, load_personas, similarity
from shared.kit.errors import SettingsError


def test_similarity_is_one_for_equal_texts_and_falls_with_edits() -> None:
    assert similarity("return total", "return total") == 1.0
    assert similarity("return total ", "return total") == 1.0
    assert similarity("abcdefghix", "abcdefghij") == pytest.approx(0.9)
    assert similarity("", "abc") == 0.0


@pytest.mark.parametrize(
    ("tolerance", "min_chars", "shown", "accepted"),
    [
        (1.0, 1, "return total", True),
        (1.0, 1, "return totals", False),
        (0.9, 1, "return totals", True),
        (0.9, 20, "return total", False),
        (0.9, 1, "raise KeyError", False),
    ],
)
def test_acceptance_is_tolerance_and_taste(tolerance: float, min_chars: int, shown: str, accepted: bool) -> None:
    persona = Persona(name="x", tolerance=tolerance, min_chars=min_chars)
    assert persona.accepts(shown, "return total") is accepted


def test_shipped_personas_are_read() -> None:
    personas = load_personas()
    assert {p.feedback for p in personas} == {"continue", "rlinf"}
    assert all(0.8 <= p.tolerance <= 1.0 for p in personas)


def test_developers_are_assigned_by_weight() -> None:
    personas = [Persona(name="a", weight=3), Persona(name="b", weight=1)]
    assert Counter(p.name for p in assign(personas, 8)) == {"a": 6, "b": 2}
    assert [p.name for p in assign(personas, 1)] == ["a"]


def test_reading_is_sometimes_distracted() -> None:
    rng = random.Random(1)
    always = Persona(name="x", read_s=0.5, distracted=1.0, distracted_s=12.0)
    never = Persona(name="x", read_s=0.5, distracted=0.0)
    assert min(always.draw_reading_s(rng) for _ in range(50)) > 12.0
    assert max(never.draw_reading_s(rng) for _ in range(50)) < 3.0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("personas: [{name: x, tolerance: 2}]", "personas.0.tolerance"),
        ("personas: [{name: x, speed: 2}]", "personas.0.speed"),
        ("personas: []", "personas"),
        ("- [", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=says) as error:
        load_personas(path)
    assert "--personas" in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_personas(tmp_path / "none.yaml")
