"""Holes along the syntax, spans elsewhere; prompts within their budgets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.warmstart.config import Holes, Prompts
from services.trainer.warmstart.files import SourceFile
from services.trainer.warmstart.grammars import PARSED_LANGUAGES, parser_for
from services.trainer.warmstart.holes import SPAN, Hole, cut_holes, syntax_holes
from services.trainer.warmstart.samples import FimSample, make_prompt
from services.trainer.warmstart.tokens import PromptTokenizer
from shared.fim import parse
from tests.unit.trainer.warmstart.conftest import MODEL, module

PYTHON = '''def total(items):
    """What the items cost."""
    # added up
    result = 0
    for item in items:
        result += item.price * 2
    return round(result, 2)


class Häfen:
    def names(self): return [h.name for h in self]
'''
IN_OTHER_LANGUAGES = {
    "c": "int f(int a) {\n  if (a > 1) {\n    return g(a);\n  }\n  return a + 1;\n}\n",
    "cpp": "int f(int a) {\n  if (a > 1) {\n    return g(a);\n  }\n  return a + 1;\n}\n",
    "go": "package a\nfunc f(a int) int {\n\tif a > 1 {\n\t\treturn g(a)\n\t}\n\treturn a + 1\n}\n",
    "java": "class A {\n  int f(int a) {\n    if (a > 1) {\n      return g(a);\n    }\n    return a + 1;\n  }\n}\n",
    "javascript": "function f(a) {\n  if (a > 1) {\n    return g(a);\n  }\n  return a + 1;\n}\n",
    "rust": "fn f(a: i32) -> i32 {\n  if a > 1 {\n    return g(a);\n  }\n  a + 1\n}\n",
    "tsx": "function f(a: number) {\n  if (a > 1) {\n    return g(a);\n  }\n  return <b>{a + 1}</b>;\n}\n",
    "typescript": "function f(a: number) {\n  if (a > 1) {\n    return g(a);\n  }\n  return a + 1;\n}\n",
    "python": "def f(a):\n    if a > 1:\n        return g(a)\n    return a + 1\n",
}


def found(text: str, language: str) -> dict[str, set[str]]:
    parser = parser_for(language)
    assert parser is not None
    texts: dict[str, set[str]] = {}
    for hole in syntax_holes(text, parser):
        texts.setdefault(hole.kind, set()).add(text[hole.start : hole.end])
    return texts


def test_kinds_in_python() -> None:
    texts = found(PYTHON, "python")
    assert {"item.price * 2", "round(result, 2)", "[h.name for h in self]"} <= texts["expression"]
    assert {"result = 0", "result += item.price * 2", "return round(result, 2)"} <= texts["statement"]
    assert "result += item.price * 2" in texts["block"]
    assert any(body.startswith('"""What') and body.endswith("round(result, 2)") for body in texts["function_body"])
    assert {"item in items:", "name for h in self]", "result, 2)"} <= texts["rest_of_line"]
    assert not any("added up" in text for kind in ("rest_of_line", "statement") for text in texts[kind])


@pytest.mark.parametrize("language", PARSED_LANGUAGES)
def test_every_kind_in_every_language(language: str) -> None:
    texts = found(IN_OTHER_LANGUAGES[language], language)
    assert "g(a)" in texts["expression"]
    assert any(text.startswith("return g(a)") for text in texts["statement"])
    assert any(text.startswith("return g(a)") and "}" not in text for text in texts["block"])
    [body] = texts["function_body"]
    assert body.startswith("if")
    assert body.count("{") == body.count("}")
    assert "> 1 {" in texts["rest_of_line"] or "> 1) {" in texts["rest_of_line"] or "> 1:" in texts["rest_of_line"]


def test_no_hole_in_what_does_not_parse() -> None:
    texts = found("def good():\n    return call(1)\n\ndef bad(:\n    return worse(2)\n", "python")
    assert "call(1)" in texts["expression"]


def test_a_language_without_grammar_gets_spans() -> None:
    text = "".join(f"set {number} to the value of {number}\n" for number in range(20))
    holes = cut_holes(SourceFile("a.lisp", text, "lisp"), Holes(per_file=10), seed=1)
    assert len(holes) == 10
    assert {hole.kind for hole in holes} == {SPAN}
    assert all(text[hole.end] == "\n" for hole in holes)


def test_weights_decide_and_the_seed_repeats() -> None:
    file = SourceFile("a.py", module(1), "python")
    only = Holes(rest_of_line=0, expression=0, statement=0, block=0, function_body=1, per_file=50)
    assert {hole.kind for hole in cut_holes(file, only, seed=1)} == {"function_body"}
    first, again, other = (cut_holes(file, Holes(per_file=10), seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len({(hole.start, hole.end) for hole in first}) == 10


@pytest.fixture(scope="module")
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer.of(MODEL)


CODE = st.text(st.sampled_from("abx_= ()[]{}:;,.\n\t\r\"'#/é√🙂"), max_size=300)


@settings(max_examples=150, deadline=None)
@given(text=CODE, language=st.sampled_from([*PARSED_LANGUAGES, "other"]), seed=st.integers(0, 5))
def test_prefix_reference_and_suffix_are_the_file(text: str, language: str, seed: int) -> None:
    file = SourceFile("a", text, language)
    config = Holes(per_file=8, min_chars=1)
    for hole in cut_holes(file, config, seed):
        sample = FimSample(file, hole, "")
        assert sample.prefix + sample.reference + sample.suffix == text
        assert sample.reference.strip()
        assert len(sample.reference.splitlines()) <= config.max_lines


@settings(max_examples=150, deadline=None)
@given(text=CODE, at=st.integers(0, 300), prefix=st.integers(1, 40), suffix=st.integers(1, 40))
def test_prompts_keep_their_budgets_and_the_text_at_the_cursor(
    tokenizer: PromptTokenizer, text: str, at: int, prefix: int, suffix: int
) -> None:
    at = min(at, len(text))
    hole = Hole("span", at, at)
    prompts = Prompts(prefix_tokens=prefix, suffix_tokens=suffix)
    place = parse(make_prompt(SourceFile("a", text, ""), hole, prompts, tokenizer))
    assert place is not None
    assert tokenizer.count(place.prefix) <= prefix
    assert text[:at].endswith(place.prefix)
    if text[at:]:
        assert tokenizer.count(place.suffix) <= suffix
        assert text[at:].startswith(place.suffix)
    else:
        assert place.suffix == "\n"


def test_a_long_prompt_begins_and_ends_with_whole_lines(tokenizer: PromptTokenizer) -> None:
    text = "".join(f"line_{random.Random(number).random()} = {number}\n" for number in range(400))
    at = text.index("= 200")
    file, hole = SourceFile("a.py", text, "python"), Hole("span", at, at)
    place = parse(make_prompt(file, hole, Prompts(prefix_tokens=200, suffix_tokens=100), tokenizer))
    assert place is not None
    assert place.prefix.startswith("line_")
    assert place.suffix.endswith("\n")
    assert 100 < tokenizer.count(place.prefix) <= 200
    assert 50 < tokenizer.count(place.suffix) <= 100
