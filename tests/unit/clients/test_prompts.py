import pytest

from clients.developer.prompts import STOP, fim_prompt, shown_text


def test_the_prompt_is_the_one_continue_sends() -> None:
    assert fim_prompt("a = ", "\nb") == "<|fim_prefix|>a = <|fim_suffix|>\nb<|fim_middle|>"


def test_an_empty_suffix_is_sent_as_a_newline() -> None:
    assert fim_prompt("a", "") == "<|fim_prefix|>a<|fim_suffix|>\n<|fim_middle|>"


def test_the_stop_list_is_the_one_continue_sends() -> None:
    assert len(STOP) == 12
    assert STOP[0] == "<|endoftext|>"
    assert STOP[-3:] == ("/src/", "#- coding: utf-8", "```")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("row.id", "row.id"),
        ("row.id\n    return", "row.id"),
        ("row<|endoftext|>junk", "row"),
        ("row.id\r\n", "row.id"),
        ("x diff --git a b", "x "),
        ("", ""),
        ("   ", ""),
        ("\nrow", ""),
        ("```python", ""),
    ],
)
def test_what_is_shown_of_one_line(raw: str, shown: str) -> None:
    assert shown_text(raw) == shown


def test_several_lines_are_shown_when_asked_for() -> None:
    assert shown_text("a\nb", multiline=True) == "a\nb"


def test_a_doubled_space_is_dropped() -> None:
    assert shown_text(" row", prefix="return ") == "row"
    assert shown_text(" row", prefix="return") == " row"


def test_the_text_ends_where_the_suffix_begins() -> None:
    suffix = "\n\ndef check_amount(invoice):\n"
    assert shown_text("row def check_amount(invoice)", suffix=suffix) == "row "


def test_the_line_below_is_not_shown_again() -> None:
    assert shown_text("return row", suffix="\n    return row\n") == ""
    assert shown_text("return row", suffix="\n    return found\n") == "return row"
