from __future__ import annotations

import pytest

from services.trainer.warmstart.grammars import PARSED_LANGUAGES
from services.trainer.warmstart.rewards.syntax import Syntax
from tests.unit.trainer.warmstart.rewards.builders import candidate

# language: (prefix, reference, suffix, another that parses, one that doesn't)
PLACES = {
    "c": ("int f(int a) {\n  return ", "a + 1;", "\n}\n", "2 * a;", "a + ;"),
    "cpp": ("auto f() {\n  return ", "std::vector<int>{1};", "\n}\n", "[](int a) { return a; };", "std::vector<int{;"),
    "go": ("package p\n\nfunc f(a int) int {\n\treturn ", "a + 1", "\n}\n", "g(a)", "g(a"),
    "java": ("class A { int f(int a) { ", "return a;", " } }", "return a * 2;", "return a *;"),
    "javascript": ("const f = (a) => ", "a + 1", ";\n", "({ b: a })", "{ b: "),
    "python": ("def f(a):\n    return ", "a + 1", "\n\ndef g():\n    pass\n", "[x for x in a]", "[x for"),
    "rust": ("fn f(a: i32) -> i32 {\n    ", "a + 1", "\n}\n", "match a { 0 => 1, _ => a }", "match a { 0 =>"),
    "tsx": ("const f = () => ", "<b>x</b>", ";\n", "<i>{1}</i>", "<i>{1}<"),
    "typescript": ("const f = (a: number): number => ", "a + 1", ";\n", "a as number", "a as ("),
}


def test_every_grammar_has_a_place() -> None:
    assert set(PLACES) == set(PARSED_LANGUAGES)


@pytest.mark.parametrize("language", PLACES)
async def test_valid_is_one_and_broken_is_zero(language: str) -> None:
    prefix, reference, suffix, valid, broken = PLACES[language]
    asked = [
        candidate(text, reference=reference, prompt_prefix=prefix, prompt_suffix=suffix, language=language)
        for text in (reference, valid, broken)
    ]
    assert await Syntax({})(asked) == [1.0, 1.0, 0.0]


async def test_a_language_without_a_grammar_is_unknown() -> None:
    assert await Syntax({})([candidate(language="cobol"), candidate(language="")]) == [None, None]


@pytest.mark.parametrize(("language", "path"), [("TypeScript", "a.tsx"), ("typescriptreact", "a"), ("JSX", "a.jsx")])
async def test_data_sets_have_names_of_their_own(language: str, path: str) -> None:
    asked = candidate("<b>x</b>", prompt_prefix="const f = ", reference="<i/>", language=language, path=path)
    assert await Syntax({})([asked]) == [1.0]


async def test_a_file_that_was_broken_before_is_no_reason_for_zero() -> None:
    around = {"prompt_prefix": "print 'python 2'\nx = ", "prompt_suffix": "\nprint 'more'\n"}
    assert await Syntax({})([candidate("2", **around), candidate("(2", **around)]) == [1.0, 0.0]


async def test_what_spoils_the_rest_of_a_broken_file_is_zero() -> None:
    """One big error instead of a small one is not better, although it is as many."""
    around = {"prompt_prefix": "x = ", "prompt_suffix": "\ny = )\nz = 3\nw = 4\n"}
    assert await Syntax({})([candidate("2", **around), candidate('"""', **around)]) == [1.0, 0.0]


async def test_nothing_written_is_nothing_earned() -> None:
    around = {"prompt_prefix": "def f():\n    ", "prompt_suffix": "pass\n", "reference": "x = 1\n    "}
    assert await Syntax({})([candidate(" ", **around)]) == [0.0]
    assert await Syntax({"blank": 0.5})([candidate("", **around)]) == [0.5]
    assert await Syntax({})([candidate("", **(around | {"reference": ""}))]) == [1.0]


async def test_a_very_large_file_is_unknown() -> None:
    assert await Syntax({"max_file_bytes": 5})([candidate("12")]) == [None]


@pytest.mark.parametrize("text", ["\x00", "\ud800", "é" * 50, "\r\n\r\n1"])
async def test_any_text_is_borne(text: str) -> None:
    assert await Syntax({})([candidate(text)]) in ([0.0], [1.0])
