"""What the developer really typed, found in a later prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.settled import anchor, settled_line, settled_text, typed_out
from shared.fim import FimPrompt

FILE = "import math\n\n\nclass Circle:\n    def __init__(self, radius):\n        self.radius = radius\n\n"
EARLIER = FILE + "    def area(self):\n        return "


def test_the_rest_of_the_line() -> None:
    assert settled_line(EARLIER, EARLIER + "math.pi * self.radius**2\n\n    def ") == "math.pi * self.radius**2"


@pytest.mark.parametrize("later", [EARLIER, EARLIER + "math", FILE, "", "\n", EARLIER + "\n    x", EARLIER + "  \nx"])
def test_an_unfinished_or_empty_line_says_nothing(later: str) -> None:
    assert settled_line(EARLIER, later) is None


def test_the_window_may_slide() -> None:
    later = EARLIER[EARLIER.index("class") :] + "math.pi\n    x"
    assert settled_line(EARLIER, later) == "math.pi"


def test_edits_further_up_are_survived() -> None:
    assert settled_line(EARLIER, EARLIER.replace("import math", "import math as m") + "m.pi\n") == "m.pi"


def test_a_place_that_occurs_twice_says_nothing() -> None:
    block = "    def area(self):\n        first = self.radius\n        return "
    earlier = "a\n\nb\n\n" + block
    assert settled_line(earlier, "c\n" + block + "1\n" + "d\n" + block + "2\n") is None


def test_too_little_to_be_sure_says_nothing() -> None:
    assert settled_line("x = ", "x = 1\ny = 2\n") is None


def test_what_stood_after_the_cursor_is_not_what_was_typed() -> None:
    assert settled_line(EARLIER + "f(", EARLIER + "f(a, b)\n", ")\n\nx") == "a, b"
    assert settled_line(EARLIER + "f(", EARLIER + "f(a, b]\n", ")\n\nx") is None


def test_line_ends_of_windows() -> None:
    assert settled_line(EARLIER.replace("\n", "\r\n"), EARLIER.replace("\n", "\r\n") + "1\r\n") == "1"
    assert settled_line(EARLIER, EARLIER.replace("\n", "\r\n") + "1\r\n") == "1"


def test_prompts_of_different_files_say_nothing() -> None:
    earlier, later = FimPrompt("a.py", EARLIER, ""), FimPrompt("b.py", EARLIER + "1\n", "")
    assert settled_text(earlier, later) is None
    assert settled_text(earlier, FimPrompt("a.py", later.prefix, "")) == "1"


@pytest.mark.parametrize(
    ("settled", "shown", "typed"),
    [("a + b", "a + b", True), ("a + b + c", "a + b", True), ("a - b", "a + b", False), ("a", "a\n    return b", True)],
)
def test_typed_out(settled: str, shown: str, typed: bool) -> None:
    assert typed_out(settled, shown) is typed


line = st.text(st.sampled_from("abc ().="), max_size=12)


@given(st.lists(line, max_size=20), line, line, st.lists(line, max_size=5))
def test_an_answer_is_always_what_was_typed(above: list[str], cursor: str, typed: str, below: list[str]) -> None:
    earlier = "\n".join([*above, cursor])
    later = earlier + typed + "\n" + "\n".join(below)
    found = settled_line(earlier, later)
    assert found in (None, typed.rstrip())
    if found is not None:
        assert (anchor(earlier) or "no anchor") in later


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=50))
def test_it_never_raises(earlier: str, later: str, suffix: str) -> None:
    settled_line(earlier, later, suffix)
