"""Settled text: what the developer really wrote at a place, seen in the prompt of a later request. Pure.

Only finished lines count, and only where the place is found for sure (`places.py`): an unsure answer is no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from rapidfuzz.distance import LCSseq

from services.ingest.places import BLANKS, Place, View, find_place, squeeze
from shared.fim import FimPrompt

MOST_LINES = 12
"""Of an insertion of several lines so many are kept: more than a completion has."""
LINES_BESIDE = 20
"""Accepted text may have moved down by so many lines."""
KEPT_SHARE = 0.7
"""A line of which less is left is another line."""
_TOKENS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Settled:
    """What stands at a place now."""

    line: str
    """The rest of the cursor's line, without what had stood after the cursor."""
    block: str
    """All finished lines up to what had stood after the cursor, at most `MOST_LINES`; `line` where it is not found."""


def settled_between(earlier: View, later: View) -> Settled | None:
    """What was written at the earlier cursor; None where the place is not found, or nothing finished is there."""
    place = find_place(earlier, later)
    if place is None:
        return None
    line_end = later.text.find("\n", place.start)
    line_begin = later.text.rfind("\n", 0, place.start) + 1
    if line_end < 0 or line_begin <= len(later.prefix) <= line_end:
        return None  # the developer is still on it
    line = _line(earlier, later, place, line_end)
    if line is None or not line.strip():
        return None
    return Settled(line.rstrip(), _block(later, place) or line.rstrip())


def settled_text(earlier: FimPrompt, later: FimPrompt) -> str | None:
    """The settled line of two prompts; None where they name different files."""
    settled = settled_between(View.of(earlier), View.of(later))
    return settled.line if settled else None


def settled_line(earlier_prefix: str, later_prefix: str, earlier_suffix: str = "") -> str | None:
    """The settled line, where nothing is known of the later suffix."""
    return settled_text(FimPrompt(None, earlier_prefix, earlier_suffix), FimPrompt(None, later_prefix, ""))


def anchor(earlier_prefix: str) -> str | None:
    """What every prompt contains, without its white space, from which anything can be told; None where none can."""
    return View.of(FimPrompt(None, earlier_prefix, "")).anchor


def typed_out(settled: str, shown: str) -> bool:
    """Whether the developer wrote what had been suggested: the first line of it, and perhaps more."""
    return written_lines(settled.strip().split("\n")[0], shown.strip().split("\n")[0]) == 1


def written_lines(block: str, shown: str) -> int:
    """How many lines of `shown`, from the first on, `block` has, the last of them perhaps with more after it.

    White space within lines does not count. A name that merely begins alike is another name.
    """
    written, suggested = _non_blank(block), _non_blank(shown)
    count = 0
    for line, wanted in zip(written, suggested, strict=False):
        rest = _rest_after(line, wanted)
        if rest is None:
            break
        count += 1
        if rest.strip():
            break
    return count


def retained(accepted: str, earlier: View, later: View) -> float | None:
    """The share of accepted text that is still at its place, 0 to 1.

    None where the place is not found for sure, or not what stood after it.
    """
    place = find_place(earlier, later)
    lines = _non_blank(accepted)
    if place is None or not lines:
        return None
    if place.end is None and earlier.head_of_suffix:
        return None  # what stood after it has changed too
    there = later.text[place.start : place.end].split("\n")[: len(lines) + LINES_BESIDE]
    tokens = [_TOKENS.findall(line) for line in there]
    same_line = 1 if earlier.cursor_line.strip() else len(tokens)  # something before the cursor holds the line in place
    kept, behind = _kept(_TOKENS.findall(lines[0]), tokens[:same_line])
    begun = sum(1 for _ in takewhile(_are_same, zip(squeeze(lines[0]), squeeze(there[0]), strict=False)))
    left = max(kept, begun)
    for line in lines[1:]:
        kept, passed = _kept(_TOKENS.findall(line), tokens[behind:])
        left, behind = left + kept, behind + passed
    return left / len(squeeze(accepted))


def _line(earlier: View, later: View, place: Place, line_end: int) -> str | None:
    """The rest of the cursor's line without what had stood there; None where that cannot be told apart."""
    rest = earlier.suffix.partition("\n")[0].rstrip()
    if place.end is not None:
        between = later.text[place.start : place.end]
        return between.partition("\n")[0]
    line = later.text[place.start : line_end].rstrip()
    if rest:
        return line.removesuffix(rest) if line.endswith(rest) else None
    below = next(iter(_non_blank(earlier.suffix)), None)
    return None if below is not None and squeeze(below) == squeeze(line) else line


def _block(later: View, place: Place) -> str | None:
    """The finished lines up to where the suffix goes on."""
    if place.end is None:
        return None
    lines = later.text[place.start : place.end].split("\n")
    cursor = len(later.prefix)
    if place.start < cursor <= place.end:
        lines = later.text[place.start : cursor].split("\n")[:-1]
    return "\n".join(lines[:MOST_LINES]).rstrip() or None


def _kept(line: list[str], there: list[list[str]]) -> tuple[int, int]:
    """The most characters of a line that one line has in the same order, and how many lines end with that one.

    0 and 0 where all are other lines. A line that is what is left of one line is not what is left of the next as well.
    """
    best, behind = 0, 0
    for number, other in enumerate(there, start=1):
        same = _same_characters(line, other)
        if same > best:
            best, behind = same, number
    return (best, behind) if best >= KEPT_SHARE * sum(map(len, line)) else (0, 0)


def _are_same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _same_characters(line: list[str], other: list[str]) -> int:
    blocks = LCSseq.editops(line, other)
    gone = {op.src_pos for op in blocks if op.tag != "insert"}
    return sum(len(token) for at, token in enumerate(line) if at not in gone)


def _rest_after(line: str, wanted: str) -> str | None:
    """What `line` has after `wanted`, white space aside; None where it begins differently."""
    at = 0
    for character in squeeze(wanted):
        while at < len(line) and line[at] in BLANKS:
            at += 1
        if at >= len(line) or line[at] != character:
            return None
        at += 1
    rest = line[at:]
    cut_in_a_name = rest[:1] and _is_word(rest[0]) and wanted.rstrip() and _is_word(wanted.rstrip()[-1])
    return None if cut_in_a_name else rest


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _non_blank(text: str) -> list[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
