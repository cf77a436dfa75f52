"""What is known of a completion that nobody was shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.scoring import displayed, several_lines, sibling_reward, similarity
from shared.contracts.experience import Reference, RewardSpec
from tests.unit.trainer.factories import experience

TEXT = st.text(alphabet="ab \n()", max_size=20)


def test_silence_is_zero() -> None:
    for text in ("", "  ", "\nreturn total", " \n"):
        assert sibling_reward(experience("return x", accepted=False), text) == 0.0


def test_identical_to_the_rejected_text_shares_its_reward() -> None:
    rejected = experience("return x", accepted=False, reference="return total")
    assert sibling_reward(rejected, "return x") == -0.25
    assert sibling_reward(rejected, "return x\nmore that nobody would see") == -0.25


def test_typed_ahead_is_still_the_rejected_text() -> None:
    rejected = experience("return x", accepted=False, shown_text="turn x")
    assert sibling_reward(rejected, "return x") == -0.25


def test_different_from_the_rejected_text_is_unknown() -> None:
    assert sibling_reward(experience("return x", accepted=False), "return y") is None


def test_the_accepted_text_is_worth_its_share() -> None:
    assert sibling_reward(experience("return total"), "return total") == pytest.approx(0.9 * 0.75)


def test_of_a_part_that_was_accepted_nothing_is_known_beyond_its_reference() -> None:
    word = experience("return a", shown_text="return").model_copy(update={"reference": None, "accepted_part": "word"})
    assert sibling_reward(word, "return a") is None
    assert sibling_reward(word, " ") == 0.0


def test_similarity_decides_near_a_known_text() -> None:
    rejected = experience("return x", accepted=False, reference="return total")
    alike = similarity("return totem", "return total")
    assert alike == pytest.approx(10 / 12)
    assert sibling_reward(rejected, "return totem") == pytest.approx(0.9 * (-0.25 + alike**4))


def test_reward_settings_travel_with_the_experience() -> None:
    spec = RewardSpec(accepted=1.0, rejected=-1.0, silence=0.1, sibling_weight=0.5, similarity_power=1.0)
    shown = experience("return total", reward_spec=spec)
    assert sibling_reward(shown, "return total") == 0.5
    assert sibling_reward(shown, "") == 0.1


def test_only_one_line_counts_where_one_was_shown() -> None:
    assert displayed("a\nb", multiline=False) == "a"
    assert displayed("a\r\nb", multiline=False) == "a"
    assert displayed("a\nb", multiline=True) == "a\nb"
    assert not several_lines("a\n")
    assert several_lines("a\nb")
    assert several_lines("\na")


def test_several_lines_are_compared_whole() -> None:
    shown = experience("if x:\n    return 1")
    assert sibling_reward(shown, "if x:\n    return 1") == pytest.approx(0.675)
    reward = sibling_reward(shown, "if x:\n    pass")
    assert reward is not None
    assert reward < 0.675


@given(TEXT, TEXT, st.booleans(), st.none() | TEXT)
def test_a_known_reward_lies_between_the_extremes(shown: str, text: str, accepted: bool, known: str | None) -> None:
    reference = None if known is None else Reference(kind="settled", text=known)
    one = experience(shown, accepted=accepted).model_copy(update={"reference": reference})
    reward = sibling_reward(one, text)
    assert reward is None or -0.25 <= reward <= 0.675
    if known is None and not accepted and reward not in (0.0, -0.25):
        assert reward is None


@given(TEXT, TEXT)
def test_similarity_is_symmetric_and_one_only_when_equal(one: str, other: str) -> None:
    assert similarity(one, other) == similarity(other, one)
    assert (similarity(one, other) == 1.0) == (one.strip() == other.strip())
