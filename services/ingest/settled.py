"""Settled text: what the developer really typed at a place, seen in the prompt of a later request. Pure.

Only a finished line counts, and only where the place is found exactly once: an unsure answer is no answer.
"""

from __future__ import annotations

from shared.fim import FimPrompt

ANCHOR_LINES = (12, 6, 3)
"""Lines before the cursor by which the place is found again, the longest first: edits further up may break those."""
ANCHOR_MIN_CHARS = 20
"""An anchor with fewer visible characters could be anywhere."""


def settled_line(earlier_prefix: str, later_prefix: str, earlier_suffix: str = "") -> str | None:
    """What was typed between the earlier cursor and the end of its line, without what stood after the cursor.

    None where the place is not found, is found twice, the line is not finished, or nothing is on it yet.
    """
    earlier, later = _unix(earlier_prefix), _unix(later_prefix)
    cursor = _find_cursor(earlier, later)
    if cursor is None:
        return None
    line, finished, _ = later[cursor:].partition("\n")
    if not finished:
        return None
    typed = _without_rest_of_line(line, _unix(earlier_suffix).partition("\n")[0])
    return typed.rstrip() if typed and typed.strip() else None


def anchor(earlier_prefix: str) -> str | None:
    """A text that every prompt contains from which `settled_line` could tell something; None where none can."""
    text = "\n".join(earlier_prefix.split("\n")[-ANCHOR_LINES[-1] :])
    return text if _visible(earlier_prefix) >= ANCHOR_MIN_CHARS else None


def settled_text(earlier: FimPrompt, later: FimPrompt) -> str | None:
    """`settled_line` of two prompts; None where they name different files."""
    if earlier.path is not None and later.path is not None and earlier.path != later.path:
        return None
    return settled_line(earlier.prefix, later.prefix, earlier.suffix)


def typed_out(settled: str, shown: str) -> bool:
    """Whether the developer typed what had been suggested: the first line of it, and perhaps more."""
    return settled.strip().startswith(shown.strip().split("\n")[0].rstrip())


def _find_cursor(earlier: str, later: str) -> int | None:
    if _visible(earlier) >= ANCHOR_MIN_CHARS and later.startswith(earlier):
        return len(earlier)
    lines = earlier.split("\n")
    for count in ANCHOR_LINES:
        anchor = "\n".join(lines[-count:])
        if len(lines) <= count or _visible(anchor) < ANCHOR_MIN_CHARS:
            continue
        places = _places("\n" + anchor, "\n" + later)
        if places:
            return places[0] + len(anchor) if len(places) == 1 else None
    return None


def _places(needle: str, text: str) -> list[int]:
    places, at = [], text.find(needle)
    while at >= 0:
        places.append(at)
        at = text.find(needle, at + 1)
    return places


def _without_rest_of_line(line: str, rest: str) -> str | None:
    rest = rest.rstrip()
    if not rest:
        return line
    line = line.rstrip()
    return line.removesuffix(rest) if line.endswith(rest) else None


def _visible(text: str) -> int:
    return sum(1 for character in text if not character.isspace())


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")
