"""What the developer really typed, found in a later prompt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from base_model.house import TEAM_SEEDS, generate_module
from services.ingest.places import View, squeeze
from services.ingest.settled import (
    MOST_LINES,
    anchor,
    retained,
    settled_between,
    settled_line,
    settled_text,
    typed_out,
    written_lines,
)
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


@pytest.mark.parametrize(("settled", "shown"), [("self.xyz", "self.x"), ("a_b", "a"), ("", "a"), ("b + a", "a")])
def test_a_longer_name_is_not_what_was_suggested(settled: str, shown: str) -> None:
    assert not typed_out(settled, shown)


@pytest.mark.parametrize(
    ("block", "shown", "lines"),
    [
        ("a + b", "a+b", 1),
        ("a\n    b\n    c", "a\n  b", 2),
        ("a\n    c", "a\n    b", 1),
        ("a  # why\n    b", "a\n    b", 1),
        ("x", "a", 0),
    ],
)
def test_how_many_suggested_lines_were_written(block: str, shown: str, lines: int) -> None:
    assert written_lines(block, shown) == lines


BELOW = "\n\n    def circumference(self):\n        return 2 * math.pi * self.radius\n"


def view(prefix: str, suffix: str = BELOW, path: str | None = None) -> View:
    return View.of(FimPrompt(path, prefix, suffix))


def test_several_lines_up_to_what_stood_below() -> None:
    typed = "(\n            math.pi\n            * self.radius**2\n        )"
    settled = settled_between(view(EARLIER), view(EARLIER + typed + BELOW, "\n"))
    assert settled
    assert (settled.line, settled.block) == ("(", typed)
    many = "0\n" + "        self.draw()\n" * 40
    settled = settled_between(view(EARLIER), view(EARLIER + many + BELOW, "\n"))
    assert settled
    assert settled.block.count("\n") == MOST_LINES - 1


def test_lines_below_the_later_cursor_are_not_finished() -> None:
    settled = settled_between(view(EARLIER), view(EARLIER + "area\n        self.x = 1\n        self."))
    assert settled
    assert settled.block == "area\n        self.x = 1"


def test_what_is_seen_below_the_later_cursor_counts_too() -> None:
    top, rest = FILE.split("class", 1)
    settled = settled_between(view(EARLIER), view(top, "class" + rest + EARLIER[len(FILE) :] + "math.pi" + BELOW))
    assert settled
    assert settled.line == "math.pi"


def test_a_line_that_was_joined_with_the_one_below_is_not_what_was_typed() -> None:
    earlier, later = (
        view(FILE + "    x = 1\n", "\n    y = radius_of_it\n"),
        view(FILE + "    x = 1\n    y = radius_of_it\n"),
    )
    assert settled_between(earlier, later) is None


def test_a_copy_of_the_file_is_another_file_where_no_name_is_sent() -> None:
    copied = view(EARLIER.replace("radius", "width") + "self.width\n    ")
    assert settled_between(view(EARLIER), copied) is None
    renamed = view(EARLIER.replace("Circle", "Disc") + "math.pi\n    ")
    assert settled_between(view(EARLIER), renamed) is None
    named = settled_between(view(EARLIER, path="a.py"), view(renamed.prefix, path="./a.py"))
    assert named
    assert named.line == "math.pi"


@pytest.mark.parametrize(
    ("now", "share"),
    [
        ("math.pi * self.radius**2", 1.0),
        ("", 0.0),
        ("0", 0.0),
        ("math.pi * self.radius**2 + 1", 1.0),
        ("math.pi", 7 / 22),
        ("float(math.pi * self.radius**2)", 1.0),
    ],
)
def test_how_much_of_an_accepted_text_is_left(now: str, share: float) -> None:
    left = retained("math.pi * self.radius**2", view(EARLIER), view(EARLIER + now + BELOW, "\n"))
    assert left == pytest.approx(share)


def test_nothing_is_said_of_accepted_text_whose_place_is_gone() -> None:
    assert retained("math.pi", view(EARLIER), view(FILE + BELOW)) is None
    assert retained("  ", view(EARLIER), view(EARLIER + "math.pi" + BELOW)) is None


line = st.text(st.sampled_from("abc ().="), max_size=12)


@given(st.lists(line, max_size=20), line, line, st.lists(line, max_size=5))
def test_an_answer_is_always_what_was_typed(above: list[str], cursor: str, typed: str, below: list[str]) -> None:
    earlier = "\n".join([*above, cursor])
    later = earlier + typed + "\n" + "\n".join(below)
    found = settled_line(earlier, later)
    assert found in (None, typed.rstrip())
    if found is not None:
        assert (anchor(earlier) or "no anchor") in squeeze(later)


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=50))
def test_it_never_raises(earlier: str, later: str, suffix: str) -> None:
    settled_line(earlier, later, suffix)
    retained(suffix or "a", View.of(FimPrompt(None, earlier, suffix)), View.of(FimPrompt(None, later, suffix)))


SOURCE = generate_module(TEAM_SEEDS[3]).source + "\n\n" + generate_module(TEAM_SEEDS[4]).source
LINES = SOURCE.split("\n")
PLACES = [
    row for row, text in enumerate(LINES) if row > 12 and len(text.strip()) > 10 and text.strip() not in SOURCE[:400]
]


def asked_and_seen(row: int, column: int) -> tuple[View, View]:
    """The window in which the rest of a line was still to be typed, and one two lines later."""
    prefix = "\n".join([*LINES[:row], LINES[row][: len(LINES[row]) - column]])
    below = "\n" + "\n".join(LINES[row + 1 :])
    return view(prefix, below), view(prefix + LINES[row][len(LINES[row]) - column :] + below[:60], below[60:])


places = st.sampled_from(PLACES)
columns = st.integers(2, 8)


@given(places, columns)
@settings(max_examples=60, deadline=None)
def test_neither_line_ends_nor_indentation_change_an_answer(row: int, column: int) -> None:
    earlier, later = asked_and_seen(row, column)
    answer = settled_between(earlier, later)
    windows = View.of(FimPrompt(None, later.prefix.replace("\n", "\r\n"), later.suffix.replace("\n", "\r\n")))
    assert settled_between(earlier, windows) == answer
    tabs = View(None, later.prefix.replace("    ", "\t"), later.suffix.replace("    ", "\t"))
    converted = settled_between(earlier, tabs)
    assert (converted and converted.line) == (answer and answer.line)
    assert answer is None or answer.line == LINES[row][len(LINES[row]) - column :]


@given(places, columns, st.integers(0, 400), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_a_window_that_slides_never_changes_an_answer(row: int, column: int, above: int, below: int) -> None:
    earlier, later = asked_and_seen(row, column)
    whole = settled_between(earlier, later)
    slid = settled_between(earlier, View(None, later.prefix[above:], later.suffix[: len(later.suffix) - below]))
    assert slid is None or (whole is not None and slid.line == whole.line)


@given(places, columns, st.lists(st.sampled_from(["import json", "", "# why", "LIMIT = 10"]), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_new_lines_above_never_change_an_answer(row: int, column: int, new: list[str]) -> None:
    earlier, later = asked_and_seen(row, column)
    edited = View(None, "\n".join([*new, later.prefix]), later.suffix)
    assert settled_between(earlier, edited) == settled_between(earlier, later)


def test_another_line_that_is_much_like_an_accepted_one_is_not_what_is_left_of_it() -> None:
    earlier = FILE + "    def remove("
    later = earlier + "self, ident: str) -> Broker | None:\n        return None" + BELOW
    assert retained("def get(self, ident: str) -> Gate:", view(earlier), view(later, "\n")) == 0


def test_one_line_is_not_what_is_left_of_two() -> None:
    earlier = FILE + "    row "
    later = earlier + "= self._rows.get(ident)\n    return row" + BELOW
    accepted = "= self._rows.get(ident)\n    self._drop(ident)"
    assert retained(accepted, view(earlier), view(later, "\n")) == pytest.approx(22 / 39)
