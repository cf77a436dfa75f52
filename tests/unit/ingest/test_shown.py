"""Where displayed text lies in generated text, and which tokens are credited."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.shown import Fit, Span, credited_tokens, credited_tokens_of_part, first_part, locate


@dataclass
class Text:
    """A sampled text from its pieces; `stops` ends it with an end token."""

    parts: list[str]
    finish_reason: str = "stop"
    stop_string: str | None = None
    extra: int = 1

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def text_offsets(self) -> list[int]:
        starts = [len("".join(self.parts[:index])) for index in range(len(self.parts))]
        return starts + [len(self.text)] * (self.extra if self.finish_reason == "stop" else 0)

    @property
    def token_ids(self) -> list[int]:
        return list(range(len(self.text_offsets)))


def credit(sampled: Text, shown: str) -> int:
    span = locate(sampled.text, shown)
    assert span is not None
    return credited_tokens(sampled, span)


@pytest.mark.parametrize(
    ("text", "shown", "span"),
    [
        ("foo(a)", "foo(a)", Span(Fit.PREFIX, 0, 6)),
        ("foo(a)\nbar", "foo(a)", Span(Fit.PREFIX, 0, 6)),
        (" foo(a)", "foo(a)", Span(Fit.TRIMMED, 1, 7)),
        ("foo(a)", "o(a)", Span(Fit.LATER, 2, 6)),
        ("Path: x.py\nfoo", "foo", Span(Fit.LATER, 11, 14)),
        ("a\nb", "a\r\nb", Span(Fit.PREFIX, 0, 3)),
        ("foo(a)", "foo(b)", None),
        ("foo(a)", "foo(a))", None),
        ("f(x, x)", "x", None),
        ("foo", "", None),
        ("  foo", "  ", None),
    ],
)
def test_locate(text: str, shown: str, span: Span | None) -> None:
    assert locate(text, shown) == span


def test_the_whole_text_credits_the_end_token() -> None:
    assert credit(Text(["foo", "(", "a", ")"]), "foo(a)") == 5


def test_a_cut_at_a_line_credits_neither_the_newline_nor_what_follows() -> None:
    assert credit(Text(["foo", "(", ")", "\n", "bar"]), "foo()") == 3


def test_trailing_white_space_that_was_trimmed_is_not_credited() -> None:
    assert credit(Text(["foo", "\n", "    "], "length"), "foo") == 1


def test_trailing_white_space_before_the_end_token_is_credited_with_it() -> None:
    assert credit(Text(["foo", "\n"]), "foo") == 3


def test_without_an_end_there_is_no_end_token_to_credit() -> None:
    assert credit(Text(["foo", "bar"], "length"), "foobar") == 2
    assert credit(Text(["foo", "bar"], "abort"), "foobar") == 2


def test_a_token_on_the_edge_counts_if_only_white_space_was_cut_from_it() -> None:
    assert credit(Text(["foo", ")\n", "bar"]), "foo)") == 2
    assert credit(Text(["foo", ")]", "bar"]), "foo)") == 1


def test_a_stop_string_of_text_is_not_credited() -> None:
    assert credit(Text(["foo", " "], stop_string="/src/", extra=3), "foo") == 1
    assert credit(Text(["foo"], stop_string="\n"), "foo") == 2
    assert credit(Text(["foo"], stop_string="<|fim_pad|>"), "foo") == 2


def test_text_typed_ahead_is_credited_and_dropped_lines_are_not() -> None:
    assert credit(Text(["re", "turn", " x"]), "turn x") == 4
    assert credit(Text(["Path:", " a.py", "\n", "foo"]), "foo") == 0


def test_a_character_of_several_tokens_is_credited_whole() -> None:
    class Split(Text):
        @property
        def text_offsets(self) -> list[int]:
            return [0, 0, 1, 2]  # é in two tokens, then x, then the end

    assert credit(Split(["é", "x"]), "é") == 2


parts = st.lists(st.text(st.sampled_from("ab \n("), min_size=1, max_size=4), min_size=1, max_size=8)


@given(parts, st.data())
def test_credited_tokens_begin_before_the_end_of_the_displayed_text(pieces: list[str], data: st.DataObject) -> None:
    sampled = Text(pieces, data.draw(st.sampled_from(["stop", "length", "abort"])))
    shown = sampled.text[: data.draw(st.integers(0, len(sampled.text)))]
    span = locate(sampled.text, shown)
    if span is None:
        assert not shown.strip()
        return
    count = credited_tokens(sampled, span)
    assert 0 <= count <= len(sampled.text_offsets)
    beyond = sampled.text[span.end :]
    if count == len(sampled.text_offsets):
        assert not beyond.strip()
    if beyond.strip():
        assert all(offset < span.end for offset in sampled.text_offsets[:count])


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a + b\nc", "a + b", "a"),
        ("foo(bar)", "foo(bar)", "foo"),
        ("(foo)\n", "(foo)", "("),
        ("\n    return x\n", "\n    return x", "\n    return"),
        ("  x = 1  \ny", "  x = 1", "  x"),
        ("x\r\ny", "x", "x"),
        (" \n ", "", ""),
    ],
)
def test_the_first_line_and_the_first_word(text: str, line: str, word: str) -> None:
    assert (first_part(text, "line"), first_part(text, "word")) == (line, word)


def test_of_a_part_its_tokens_are_credited_and_never_the_end() -> None:
    sampled = Text(["def", " f():", "\n    ", "pass"])
    assert credited_tokens_of_part(sampled, first_part(sampled.text, "line")) == 2
    assert credited_tokens_of_part(sampled, first_part(sampled.text, "word")) == 1
    single = Text(["a", " + b"])
    assert credited_tokens_of_part(single, "a + b") == 2
    assert credited_tokens_of_part(Text(["a +", " b"]), "a") == 0
