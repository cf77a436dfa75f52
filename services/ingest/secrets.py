"""Puts a mark in the place of each secret in code, before anything is stored. Pure.

In: text, and the ends of the lines that it stands in. Out: the text without its secrets, and what kinds there were.

The detector's own scanner takes milliseconds for a prompt; here plain searches (`secret_hints`) choose the few lines
that its patterns (`secret_patterns`) look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.ingest.secret_hints import Hints, hints
from services.ingest.secret_patterns import Found, keyword_values, private_keys, tokens
from shared.fim import SPECIAL_TOKENS

MAX_LINE = 4096
"""Longer lines are looked at in pieces, so that no pattern ever sees more."""
_PIECE_OVERLAP = 256
_MARK = re.compile(r"<redacted:[a-z0-9-]+>")
_BREAKS = re.compile("|".join(sorted(map(re.escape, SPECIAL_TOKENS), key=len, reverse=True)))
"""Special tokens of the models end a line as well."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets."""

    text: str
    kinds: tuple[str, ...] = ()
    """What was taken out, in alphabetical order, each kind once; empty where nothing was found."""


def redact(text: str, *, before: str = "", after: str = "") -> Redacted:
    """`text` with `<redacted:kind>` for every secret in it.

    `before`, `after`: what it stands between, so that `password = "` before it tells what it is. They are not changed.
    """
    head, tail = before[before.rfind("\n") + 1 :][-MAX_LINE:], after.partition("\n")[0][:MAX_LINE]
    around = f"{head}{text}{tail}"
    return _without(_find(around, hints(around)), text, len(head))


def redact_hinted(text: str, hinted: Hints) -> Redacted:
    """The same, of a text that stands alone and was looked through already."""
    return _without(_find(text, hinted), text, 0) if hinted else Redacted(text)


def _without(found: Iterable[Found], text: str, at: int) -> Redacted:
    """`text` without what was found in the place where it begins at `at`."""
    begin, end = at, at + len(text)
    inside = [
        (max(start, begin) - begin, min(stop, end) - begin, kind)
        for start, stop, kind in _merged(found)
        if stop > begin and start < end
    ]
    if not inside:
        return Redacted(text)
    return Redacted(_replaced(text, inside), tuple(sorted({kind for _, _, kind in inside})))


def has_mark(text: str) -> bool:
    """Whether something was taken out of `text`."""
    return "<redacted:" in text and _MARK.search(text) is not None


def _replaced(text: str, found: Iterable[Found]) -> str:
    parts, at = [], 0
    for start, end, kind in found:
        parts += [text[at:start], f"<redacted:{kind}>"]
        at = end
    return "".join([*parts, text[at:]])


def _merged(found: Iterable[Found]) -> list[Found]:
    """In order, without overlaps: what overlaps is one secret, of the kind that begins first (and is the longest)."""
    merged: list[Found] = []
    for start, end, kind in sorted(found, key=lambda one: (one[0], -one[1])):
        if merged and start < merged[-1][1]:
            last = merged[-1]
            merged[-1] = last[0], max(last[1], end), last[2]
        else:
            merged.append((start, end, kind))
    return merged


def _find(text: str, hinted: Hints) -> list[Found]:
    found: list[Found] = []
    for positions, find in ((hinted.keywords, keyword_values), (hinted.tokens, tokens)):
        for begin, piece in _lines(text, positions) if positions else ():
            found += [(begin + start, begin + end, kind) for start, end, kind in find(piece)]
    if hinted.private_key:
        found += private_keys(text)
    return found


def _lines(text: str, positions: list[int]) -> Iterator[tuple[int, str]]:
    """The lines of these positions, each once, with where they begin; long ones in pieces that overlap."""
    done = -1
    for at in sorted(positions):
        if at < done:
            continue
        start, done = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        done = len(text) if done < 0 else done
        for begin, end in _parts(text, start, done):
            while end - begin > MAX_LINE:
                yield begin, text[begin : begin + MAX_LINE]
                begin += MAX_LINE - _PIECE_OVERLAP
            yield begin, text[begin:end]


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Of a line, what stands between special tokens."""
    for mark in _BREAKS.finditer(text, start, end):
        yield start, mark.start()
        start = mark.end()
    yield start, end
