"""Prompts as the vendors write them, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.fim import FAMILIES, SPECIAL_TOKENS, FimPrompt, Snippet, insert_before_suffix, parse, render, stop_strings
from shared.fim.comments import comment_mark

WRITTEN = {
    "qwen": "<|fim_prefix|>def f(<|fim_suffix|>\n    pass<|fim_middle|>",
    "starcoder": "<fim_prefix>def f(<fim_suffix>\n    pass<fim_middle>",
    "codellama": "<PRE> def f( <SUF>\n    pass <MID>",
    "deepseek": "<｜fim▁begin｜>def f(<｜fim▁hole｜>\n    pass<｜fim▁end｜>",
    "codestral": "[SUFFIX]\n    pass[PREFIX]def f(",
}
_MARKS = sorted({*SPECIAL_TOKENS, *(m for t in FAMILIES.values() for m in (t.before, t.between, t.after) if m)})
families = st.sampled_from(sorted(FAMILIES))


def code(max_size: int = 60) -> st.SearchStrategy[str]:
    """Any text without a special token; what looks nearly like one comes often."""
    piece = st.text(max_size=8) | st.sampled_from(["<", "|>", " <", "<PRE", "[SUFFIX", "\n", " ", "<|fim_", "\r\n"])
    return st.lists(piece, max_size=8).map("".join).map(lambda text: text[:max_size]).filter(_is_plain)


def _is_plain(text: str) -> bool:
    return not any(mark.strip() in text for mark in _MARKS)


paths = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}\.(py|ts|lua)", fullmatch=True)
snippets = st.lists(st.builds(Snippet, paths | st.none(), code()), min_size=1, max_size=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_as_the_vendor_writes_it(family: str) -> None:
    assert render(family, "def f(", "\n    pass") == WRITTEN[family]
    assert render(family, "def f(", "\n    pass", path="a.py", repo="r") == WRITTEN[family]


@given(families, code(), code())
def test_what_was_written_is_read(family: str, prefix: str, suffix: str) -> None:
    assert parse(render(family, prefix, suffix)) == FimPrompt(None, prefix, suffix)


@given(families, code(), code(), code())
def test_typing_moves_the_cursor(family: str, prefix: str, suffix: str, typed: str) -> None:
    assert insert_before_suffix(render(family, prefix, suffix), typed) == render(family, prefix + typed, suffix)


@given(st.sampled_from(["qwen", "starcoder"]), code(), code(), paths, st.none() | st.just("repo"), snippets)
def test_other_files_do_not_hide_this_one(
    family: str, prefix: str, suffix: str, path: str, repo: str | None, others: list[Snippet]
) -> None:
    prompt = render(family, prefix, suffix, path=path, repo=repo, snippets=others)

    assert parse(prompt) == FimPrompt(path, prefix, suffix)
    assert all(other.text in prompt for other in others)


@given(st.sampled_from(["codellama", "deepseek", "codestral"]), code(), code(), paths, snippets)
def test_other_files_as_comments(family: str, prefix: str, suffix: str, path: str, others: list[Snippet]) -> None:
    found = parse(render(family, prefix, suffix, path=path, snippets=others))

    assert found is not None
    assert found.suffix == suffix
    assert found.prefix.endswith(prefix)
    above = found.prefix.removesuffix(prefix)
    assert all(line.startswith(comment_mark(path, None)) for line in above.split("\n")[:-1])


def test_qwens_repository_form() -> None:
    others = [Snippet("util.py", "def g(): ...\n"), Snippet(None, "x = 1")]

    prompt = render("qwen", "from util import g\n", "\n", path="src/main.py", repo="ws", snippets=others)

    assert prompt == (
        "<|repo_name|>ws\n<|file_sep|>util.py\ndef g(): ...\n\n<|file_sep|>untitled\nx = 1\n"
        "<|file_sep|>src/main.py\n<|fim_prefix|>from util import g\n<|fim_suffix|>\n<|fim_middle|>"
    )


def test_starcoder2s_repository_form() -> None:
    prompt = render("starcoder", "pre", "suf", path="b.py", repo="r", snippets=[Snippet("a.py", "code\n")])

    assert prompt == ("<repo_name>r<file_sep>a.py\ncode\n<file_sep><fim_prefix>b.py\npre<fim_suffix>suf<fim_middle>")


def test_deepseeks_other_files_are_comments() -> None:
    prompt = render("deepseek", "x", "y", path="a.ts", snippets=[Snippet("b.ts", "let a\n\nlet b")])

    assert prompt == "<｜fim▁begin｜>// Path: b.ts\n// let a\n//\n// let b\nx<｜fim▁hole｜>y<｜fim▁end｜>"


@pytest.mark.parametrize("other", FAMILIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_of_other_families_are_text(family: str, other: str) -> None:
    if family != other:
        assert parse(render(family, WRITTEN[other], "x")) == FimPrompt(None, WRITTEN[other], "x")


def test_a_familys_own_tokens_in_the_text_pass_through() -> None:
    prompt = render("qwen", "MARK = '<|fim_suffix|>'\nx = ", "\n")

    assert "MARK = '<|fim_suffix|>'\nx = <|fim_suffix|>\n" in prompt
    assert parse(prompt) == FimPrompt(None, "MARK = '", "'\nx = <|fim_suffix|>\n")


@pytest.mark.parametrize("prompt", ["", "def f", "x[SUFFIX] = y[PREFIX]", "<|fim_prefix|>only", "<PRE> a <SUF>b"])
def test_other_prompts(prompt: str) -> None:
    assert parse(prompt) is None
    assert insert_before_suffix(prompt, "x") is None


def test_continues_starcoder_prompt_names_no_file() -> None:
    prompt = "<file_sep>other\ncode<file_sep><fim_prefix>a\nb<fim_suffix>c<fim_middle>"

    assert parse(prompt) == FimPrompt(None, "a\nb", "c")


def test_stop_strings_are_the_special_tokens() -> None:
    assert stop_strings("qwen")[0] == "<|endoftext|>"
    for family, template in FAMILIES.items():
        marks = {mark.strip() for mark in (template.before, template.between, template.after) if mark}
        assert marks <= set(stop_strings(family))
        assert template.name == family


@pytest.mark.parametrize(
    ("path", "language", "mark"),
    [
        ("a.py", None, "#"),
        ("a.rs", None, "//"),
        (None, "lua", "--"),
        (None, None, "#"),
        ("Makefile", "makefile", "#"),
        ("a.unknown", "typescript", "//"),
    ],
)
def test_comment_marks(path: str | None, language: str | None, mark: str) -> None:
    assert comment_mark(path, language) == mark
