"""A module in the making: draws names and ways, and remembers where the ways stand in the text.

``Draft.pick`` returns the chosen way between two marks. Marks survive string formatting and nest; ``Draft.finish``
removes them and turns them into ``Choice`` spans, which the evaluation needs to say what a model could not know.
"""

import random
import re
from dataclasses import dataclass

from base_model.house.styles import POINTS, Style

_OPEN, _CLOSE = "\x01", "\x02"
_FIRST_MARK = 0xE000


@dataclass(frozen=True, slots=True)
class Choice:
    """The text from ``start`` to ``end`` is one way to write ``point``; ``others`` are the ways not taken."""

    point: str
    way: int
    start: int
    end: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A generated file: its path in the house's repository, its source, and the idioms picked in it."""

    path: str
    source: str
    choices: tuple[Choice, ...]


class Draft:
    """Names come from ``names`` (by seed alone); ways from the style, or else at random, each time anew."""

    def __init__(self, seed: int, style: Style | None) -> None:
        self.names = random.Random(f"house-{seed}")
        self._taste = random.Random(f"taste-{seed}")
        self._style = style
        self._picks: list[tuple[str, int, tuple[str, ...]]] = []

    def pick(self, point: str, *ways: str) -> str:
        """The way written here, marked."""
        if len(ways) != POINTS[point]:
            raise ValueError(f"point {point!r} has {POINTS[point]} ways, not {len(ways)}")
        way = self._style.ways[point] if self._style else self._taste.randrange(len(ways))
        others = tuple(plain(text) for i, text in enumerate(ways) if i != way)
        self._picks.append((point, way, others))
        return f"{_OPEN}{chr(_FIRST_MARK + len(self._picks) - 1)}{ways[way]}{_CLOSE}"

    def finish(self, path: str, marked: str) -> Module:
        """The module without marks, with its choices in text order."""
        text: list[str] = []
        opened: list[tuple[int, int]] = []
        choices: list[Choice] = []
        marks = iter(marked)
        for char in marks:
            if char == _OPEN:
                opened.append((ord(next(marks)) - _FIRST_MARK, len(text)))
            elif char == _CLOSE:
                pick, start = opened.pop()
                point, way, others = self._picks[pick]
                choices.append(Choice(point, way, start, len(text), others))
            else:
                text.append(char)
        return Module(path, "".join(text), tuple(sorted(choices, key=lambda c: (c.start, -c.end))))


def plain(marked: str) -> str:
    """The text without its marks: for a name that is used again after it was picked."""
    return re.sub(f"{_OPEN}.|{_CLOSE}", "", marked)
