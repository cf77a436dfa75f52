from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.warmstart.rewards.judge_client import is_private
from services.trainer.warmstart.rewards.judge_prompt import RUBRIC, messages, read_score
from tests.unit.trainer.warmstart.rewards.builders import candidate

TOKEN = "3f9a1b"


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("3f9a1b score: 7", 0.7),
        ("  3F9A1B Score:  0  ", 0.0),
        ("3f9a1b score: 10", 1.0),
        ("3f9a1b score: 7.5", 0.75),
        ("It is a good one.\n3f9a1b score: 8\n", 0.8),
        ("3f9a1b score: 2, no:\n3f9a1b score: 6", 0.6),
        ("7", 0.7),
        (" 7 / 10\n", 0.7),
        ("3f9a1b score: 11", None),
        ("3f9a1b score: 100", None),
        ("3f9a1b score: -1", None),
        ("score: 9", None),
        ("000000 score: 9", None),
        ("I cannot grade this.", None),
        ("", None),
    ],
)
def test_answers(answer: str, value: float | None) -> None:
    assert read_score(answer, TOKEN) == value


@given(st.text(), st.text(), st.text())
def test_code_cannot_leave_its_block(before: str, completion: str, after: str) -> None:
    """The token is drawn after the code was written: here it is in none of the texts."""
    texts = [text.replace(TOKEN, "") for text in (before, completion, after)]
    asked = candidate(texts[1], prompt_prefix=texts[0], prompt_suffix=texts[2], reference="")
    system, user = messages(asked, TOKEN, rubric=RUBRIC, reference=True, before=10**6, after=10**6)
    assert user["content"].count(TOKEN) == 8  # four blocks, each begun and ended
    assert f"BEGIN {TOKEN} COMPLETION\n{texts[1]}\nEND {TOKEN} COMPLETION" in user["content"]
    assert texts[1] == "" or len(texts[1]) < 20 or texts[1] not in system["content"]


def test_what_is_shown() -> None:
    asked = candidate("c" * 9, prompt_prefix="p" * 9, prompt_suffix="s" * 9, reference="r" * 9, language="py\nthon}{")
    _, user = messages(asked, TOKEN, rubric="{braces} are no placeholders", reference=False, before=3, after=2)
    assert "\nppp\n" in user["content"]
    assert "\nss\n" in user["content"]
    assert "rrr" not in user["content"]
    assert user["content"].startswith("Language: python\n")


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("192.168.1.1", True),
        ("169.254.1.1", True),
        ("100.64.0.1", True),
        ("::1", True),
        ("fd00::1", True),
        ("fe80::1%eth0", True),
        ("8.8.8.8", False),
        ("172.32.0.1", False),
        ("2606:4700::1111", False),
        ("::ffff:8.8.8.8", False),
        ("::ffff:10.0.0.1", True),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
    ],
)
def test_which_addresses_are_ours(address: str, private: bool) -> None:
    assert is_private(address) is private
