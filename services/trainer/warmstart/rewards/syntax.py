"""The reward `syntax`: with the completion in place the file parses at least as well as it does in the repository.

Beside another reward, never alone: a comment is always valid syntax. tree-sitter's grammars let some wrong programs
pass, and no types or names are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from tree_sitter import Node, Parser

from services.trainer.warmstart.grammars import parser_for
from services.trainer.warmstart.rewards.options import Options
from services.trainer.warmstart.rewards.protocol import Candidate


class SyntaxOptions(Options):
    """Of `syntax`."""

    max_file_bytes: int = Field(default=1_000_000, ge=1)
    """Of larger files nothing is known."""
    blank: float = Field(default=0.0, ge=0, le=1)
    """Of a completion that is only white space where the reference is more: nothing written, nothing wrong."""


class Syntax:
    """1 or 0; None for a language without a grammar and for very large files."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = SyntaxOptions.model_validate(options)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """See `Reward`. Parses in one thread, so that other rewards go on meanwhile."""
        return await asyncio.to_thread(self._values, candidates)

    def _values(self, candidates: Sequence[Candidate]) -> list[float | None]:
        damages: dict[tuple[str, str, str, str], Damage] = {}
        return [self._value(candidate, damages) for candidate in candidates]

    def _value(self, candidate: Candidate, damages: dict[tuple[str, str, str, str], Damage]) -> float | None:
        parser = parser_for(candidate.language, candidate.path)
        longest = max(candidate.completion, candidate.reference, key=len)
        around = candidate.prompt_prefix, candidate.prompt_suffix
        if parser is None or len("".join((*around, longest)).encode(errors="replace")) > self._options.max_file_bytes:
            return None
        if not candidate.completion.strip() and candidate.reference.strip():
            return self._options.blank
        key = (candidate.language, *around, candidate.reference)
        if key not in damages:
            damages[key] = damage(parser, *around, candidate.reference)
        return float(damage(parser, *around, candidate.completion).at_most(damages[key]))


@dataclass(frozen=True, slots=True)
class Damage:
    """What a parser could not make sense of."""

    nodes: int
    """Erroneous and missing ones; an erroneous one counts with all that it holds."""
    bytes_around: int
    """In erroneous nodes, outside of the hole: what a completion spoils around itself."""

    def at_most(self, other: Damage) -> bool:
        """Whether nothing is worse here than there."""
        return self.nodes <= other.nodes and self.bytes_around <= other.bytes_around


def damage(parser: Parser, prefix: str, suffix: str, middle: str) -> Damage:
    """Of the file with `middle` in its hole. Pure."""
    before, inside, after = (text.encode(errors="replace") for text in (prefix, middle, suffix))
    start, end = len(before), len(before) + len(inside)
    spoiled = _errors(parser.parse(before + inside + after).root_node)
    around = sum(_size(node) - max(0, min(node.end_byte, end) - max(node.start_byte, start)) for node in spoiled)
    return Damage(len(spoiled), around)


def _errors(root: Node) -> list[Node]:
    """The outermost erroneous or missing nodes."""
    found, ahead = [], [root]
    while ahead:
        node = ahead.pop()
        if node.is_error or node.is_missing:
            found.append(node)
        elif node.has_error:
            ahead += node.children
    return found


def _size(node: Node) -> int:
    return node.end_byte - node.start_byte
