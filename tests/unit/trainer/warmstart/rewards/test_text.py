from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.warmstart.rewards.text import EditSimilarity, ExactMatch
from tests.unit.trainer.warmstart.rewards.builders import candidate


@pytest.mark.parametrize(
    ("completion", "options", "value"),
    [
        ("total + 1", {}, 1.0),
        (" total + 1\n", {}, 1.0),
        (" total + 1\n", {"strip": False}, 0.0),
        ("total + 2", {}, 0.0),
        ("", {}, 0.0),
    ],
)
async def test_exact_match(completion: str, options: dict[str, object], value: float) -> None:
    assert await ExactMatch(options)([candidate(completion, reference="total + 1")]) == [value]


async def test_only_the_first_line_counts_if_asked() -> None:
    asked = [candidate("a\nb", reference="a\nc")]
    assert await ExactMatch({})(asked) == [0.0]
    assert await ExactMatch({"first_line": True})(asked) == [1.0]
    assert await EditSimilarity({"first_line": True})(asked) == [1.0]


async def test_edit_similarity_by_hand() -> None:
    """`kitten` to `sitting`: 3 edits, 7 characters (Levenshtein's classic)."""
    asked = [candidate("kitten", reference="sitting")]
    assert await EditSimilarity({})(asked) == [pytest.approx(1 - 3 / 7)]
    assert await EditSimilarity({"power": 2})(asked) == [pytest.approx((1 - 3 / 7) ** 2)]


async def test_nothing_equals_nothing() -> None:
    assert await EditSimilarity({})([candidate("", reference=" \n")]) == [1.0]


@given(st.text(), st.text(), st.floats(0.1, 8))
async def test_edit_similarity_is_a_share_and_one_only_for_equal(one: str, other: str, power: float) -> None:
    (value,) = await EditSimilarity({"power": power, "strip": False})([candidate(one, reference=other)])
    assert value is not None
    assert 0 <= value <= 1
    assert (value == 1) == (one == other)
