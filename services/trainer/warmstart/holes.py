"""Holes: what is cut out of a file for the model to fill in. Offsets are of characters. Pure.

Along the syntax where tree-sitter knows the language, by rules that hold for all its grammars:

rest_of_line    from the beginning of a token to the end of its line, as an editor's single-line completion
expression      a call, an operation, a literal collection … (`…_expression`, and the names that Python has for them)
statement       one statement of a block; no function or class
block           all statements of a block, its brackets left standing; function_body: those of a function

Elsewhere `span`: from the beginning of a word to the end of its line, or of one of the next lines.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tree_sitter import Node, Parser

from services.trainer.warmstart.config import Holes
from services.trainer.warmstart.files import SourceFile
from services.trainer.warmstart.grammars import parser_for

SPAN: Final = "span"
_EXPRESSIONS: Final = {
    "call", "attribute", "subscript", "binary_operator", "boolean_operator", "not_operator", "unary_operator",
    "comparison_operator", "list", "dictionary", "set", "tuple", "list_comprehension", "dictionary_comprehension",
    "set_comprehension", "lambda", "await", "array", "object", "method_invocation", "array_access",
    "composite_literal", "macro_invocation",
}  # fmt: skip
_BLOCKS: Final = frozenset({"block", "statement_block", "compound_statement"})
_LISTS: Final = _BLOCKS | {"statement_list"}
_FUNCTION: Final = re.compile(r"function|method|constructor|closure|arrow|lambda|func_literal")
_DEFINITION: Final = re.compile(r"function|method|constructor|class|decorated|interface|struct|enum|impl_item")
_OPAQUE: Final = re.compile(r"comment|string|char_literal|heredoc|template")
_WORD: Final = re.compile(r"\w+|[^\w\s]")
_SPAN_SEVERAL_LINES: Final = 0.25


@dataclass(frozen=True, slots=True)
class Hole:
    """`text[start:end]` of a file is missing."""

    kind: str
    start: int
    end: int


def cut_holes(file: SourceFile, config: Holes, seed: int) -> list[Hole]:
    """At most `per_file` different ones, by order of place. The same file, configuration and seed give the same."""
    rng = random.Random(f"{seed} {file.file_id}")
    parser = parser_for(file.language, file.path)
    found = spans(file.text, rng, config) if parser is None else syntax_holes(file.text, parser)
    by_kind: dict[str, list[Hole]] = {}
    for hole in found:
        if _fits(hole, file.text, config):
            by_kind.setdefault(hole.kind, []).append(hole)
    weights = {SPAN: 1.0} if parser is None else config.weights
    return sorted(_drawn(by_kind, weights, config.per_file, rng), key=lambda hole: (hole.start, hole.end))


def syntax_holes(text: str, parser: Parser) -> Iterator[Hole]:
    """Every hole along the syntax; none within what the parser could not make sense of."""
    encoded = text.encode("utf-8", "replace")
    chars = _Characters(text, len(encoded))
    for node in _sound_nodes(parser.parse(encoded).root_node):
        if (found := _by_syntax(node, encoded)) is not None:
            kind, start, end = found
            yield Hole(kind, chars.at(start), chars.at(end))
        if node.child_count == 0 and not _OPAQUE.search(node.type):
            start = chars.at(node.start_byte)
            yield Hole("rest_of_line", start, _line_end(text, start))


def spans(text: str, rng: random.Random, config: Holes) -> Iterator[Hole]:
    """Without syntax: one for every word."""
    for word in _WORD.finditer(text):
        end = _line_end(text, word.start())
        if rng.random() < _SPAN_SEVERAL_LINES:
            for _ in range(rng.randrange(config.max_lines)):
                end = _line_end(text, end + 1) if end + 1 < len(text) else end
        yield Hole(SPAN, word.start(), end)


def _by_syntax(node: Node, encoded: bytes) -> tuple[str, int, int] | None:
    """Kind, first and last byte; None where the node is no hole but perhaps for the rest of a line."""
    if not node.is_named:
        return None
    if node.type in _BLOCKS:
        start, end = _inside(node, encoded)
        return ("function_body" if _is_body(node) else "block"), start, end
    parent = node.parent
    if parent is not None and parent.type in _LISTS and not _no_statement(node):
        return "statement", node.start_byte, node.end_byte
    if node.type in _EXPRESSIONS or node.type.endswith("_expression"):
        return "expression", node.start_byte, node.end_byte
    return None


def _no_statement(node: Node) -> bool:
    return bool(node.type == "statement_list" or _OPAQUE.search(node.type) or _DEFINITION.search(node.type))


def _is_body(node: Node) -> bool:
    parent = node.parent
    return parent is not None and bool(_FUNCTION.search(parent.type)) and parent.child_by_field_name("body") == node


def _inside(node: Node, encoded: bytes) -> tuple[int, int]:
    """Without brackets and the white space along them."""
    start, end = node.start_byte, node.end_byte
    if encoded[start:end].startswith(b"{") and encoded[start:end].endswith(b"}"):
        start, end = start + 1, end - 1
    inner = encoded[start:end]
    return start + len(inner) - len(inner.lstrip()), max(start, end - len(inner) + len(inner.rstrip()))


def _sound_nodes(root: Node) -> Iterator[Node]:
    """Nodes without an error in them, the outer ones first."""
    ahead = [root]
    while ahead:
        node = ahead.pop()
        if not (node.has_error or node.is_missing):
            yield node
        if not node.is_error:
            ahead += reversed(node.children)


def _fits(hole: Hole, text: str, config: Holes) -> bool:
    middle = text[hole.start : hole.end]
    return len(middle.strip()) >= config.min_chars and len(middle.splitlines()) <= config.max_lines


def _drawn(by_kind: dict[str, list[Hole]], weights: dict[str, float], count: int, rng: random.Random) -> list[Hole]:
    """A kind by weight, then one of its holes; a place is cut once."""
    places: dict[tuple[int, int], Hole] = {}
    left = {kind: holes for kind, holes in by_kind.items() if weights.get(kind, 0) > 0}
    while left and len(places) < count:
        (kind,) = rng.choices(list(left), [weights[kind] for kind in left])
        hole = left[kind].pop(rng.randrange(len(left[kind])))
        places.setdefault((hole.start, hole.end), hole)
        if not left[kind]:
            del left[kind]
    return list(places.values())


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    return end - 1 if end > start and text[end - 1] == "\r" else end


class _Characters:
    """From byte offsets to those of characters."""

    def __init__(self, text: str, size: int) -> None:
        same = size == len(text)
        self._starts = None if same else [0, *accumulate(len(char.encode("utf-8", "replace")) for char in text)]

    def at(self, byte: int) -> int:
        return byte if self._starts is None else bisect_left(self._starts, byte)
