"""A file in an editor that remembers every character: which ones survive is the truth that answers are held against."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from shared.fim import FimPrompt


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The file at one moment. `ids[i]` names the character `text[i]` for ever."""

    text: str
    ids: array[int]

    def between(self, left: set[int], right: set[int]) -> tuple[int, int]:
        """Positions behind the last surviving character of `left` and before the first one of `right` after it."""
        start = max((at + 1 for at, one in enumerate(self.ids) if one in left), default=0)
        end = next((at for at in range(start, len(self.ids)) if self.ids[at] in right), len(self.ids))
        return start, end


@dataclass(slots=True)
class Document:
    """Text with a name for each character. Line ends and tabs are how it is written out, not what it is."""

    path: str
    text: str
    crlf: bool = False
    tabs: bool = False
    ids: array[int] = field(init=False)
    _next: int = 0

    def __post_init__(self) -> None:
        self.ids = self._fresh(len(self.text))

    def insert(self, at: int, text: str) -> array[int]:
        """Write `text`; the names of its characters."""
        ids = self._fresh(len(text))
        self.text = self.text[:at] + text + self.text[at:]
        self.ids = self.ids[:at] + ids + self.ids[at:]
        return ids

    def delete(self, start: int, end: int) -> None:
        """Remove what stands there."""
        self.text = self.text[:start] + self.text[end:]
        self.ids = self.ids[:start] + self.ids[end:]

    def position(self, ident: int) -> int:
        """Where a character is now. Raises `ValueError` where it is gone."""
        return self.ids.index(ident)

    def snapshot(self) -> Snapshot:
        """The file as it is."""
        return Snapshot(self.text, self.ids[:])

    def written(self, text: str) -> str:
        """`text` as the editor sends it."""
        if self.tabs:
            text = "\n".join(_with_tabs(line) for line in text.split("\n"))
        return text.replace("\n", "\r\n") if self.crlf else text

    def _fresh(self, count: int) -> array[int]:
        self._next += count
        return array("l", range(self._next - count, self._next))


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a file a client sends: whole lines or not."""

    before: int
    after: int
    whole_lines: bool

    def bounds(self, text: str, cursor: int) -> tuple[int, int]:
        """Which part of the file is sent."""
        start, end = max(0, cursor - self.before), min(len(text), cursor + self.after)
        if self.whole_lines and start > 0:
            start = text.find("\n", start, cursor) + 1 or start
        if self.whole_lines and end < len(text):
            newline = text.rfind("\n", cursor, end)
            end = newline if newline >= 0 else end
        return start, end

    def prompt(self, document: Document, cursor: int, *, named: bool) -> FimPrompt:
        """What is sent at this cursor."""
        start, end = self.bounds(document.text, cursor)
        prefix, suffix = document.text[start:cursor], document.text[cursor:end]
        return FimPrompt(document.path if named else None, document.written(prefix), document.written(suffix) or "\n")


def _with_tabs(line: str) -> str:
    blanks = len(line) - len(line.lstrip(" "))
    return "\t" * (blanks // 4) + " " * (blanks % 4) + line[blanks:]
