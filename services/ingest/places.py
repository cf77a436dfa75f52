"""Finds the place of an earlier cursor again in a later prompt of the same file. Pure.

A prompt is a window of a file around a cursor. Between two of them the window slides, lines change above and below,
a formatter turns tabs into blanks, an editor CRLF into LF. So the place is looked for without any white space: by the
characters right before it, then by the lines above and below. An unsure answer is no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from shared.fim import FimPrompt

BLANKS = " \t\r\n\f\v"
ANCHOR_CHARS = 24
"""So many visible characters right before the cursor must stand there unchanged."""
ANCHOR_MIN_CHARS = 20
"""A prefix with fewer visible characters could be anywhere."""
MAX_CANDIDATES = 40
NEAR_LINES = 12
"""Lines above by which one place is told from another in the same file."""
FAR_LINES = 120
"""Lines above and below by which one file is told from another."""
MARGIN_LINES = 2
"""By so many lines the best place must be better than the second."""
SURE_LINES = 3
"""So many lines around it must be the same where the prompts do not name the file."""
SURE_SHARE = 0.6
SURE_SHARE_NAMED = 0.4
"""Of the lines above (and below), at least this share must be the same; less is asked where the file's name is."""
NEAR_SHARE = 0.5
"""Of the lines right above, at least this share must be the same."""
ALIKE = 70.0
"""Two lines at the same place that are so much alike (0 to 100) are one line that was changed. Where no file is named
there must be none: a copy of a file differs from it by changed lines, an edited file mostly by new and missing ones."""
_TELLING = 3
"""Letters or digits that a line must have to tell anything: brackets and `else:` stand everywhere."""

_NO_BLANKS = str.maketrans("", "", BLANKS)
_VISIBLE = re.compile(f"[^{BLANKS}]+")
_WORD_CHARACTER = re.compile(r"\w")
_LINE_BLANKS = re.compile(r"[ \t\f\v]*")


def squeeze(text: str) -> str:
    """`text` without white space."""
    return text.translate(_NO_BLANKS)


def unix(text: str) -> str:
    """Line ends of Unix."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class View:
    """One prompt's window of a file. What is derived is computed once, for a view is looked at often."""

    path: str | None
    prefix: str
    suffix: str

    @classmethod
    def of(cls, prompt: FimPrompt) -> View:
        """The window of a prompt."""
        return cls(prompt.path, unix(prompt.prefix), unix(prompt.suffix))

    @property
    def text(self) -> str:
        """The window without the cursor."""
        return self.prefix + self.suffix

    @cached_property
    def squeezed(self) -> str:
        """The window without white space."""
        return squeeze(self.text)

    @cached_property
    def positions(self) -> list[int]:
        """Where in `text` each character of `squeezed` stands."""
        return [at for run in _VISIBLE.finditer(self.text) for at in range(run.start(), run.end())]

    @cached_property
    def anchor(self) -> str | None:
        """The visible characters right before the cursor; None where they could be anywhere."""
        visible = squeeze(self.prefix[-40 * ANCHOR_CHARS :])[-ANCHOR_CHARS:]
        return visible if len(visible) >= ANCHOR_MIN_CHARS else None

    @cached_property
    def cursor_line(self) -> str:
        """What stands before the cursor on its line."""
        return self.prefix.rpartition("\n")[2]

    @cached_property
    def above(self) -> list[str]:
        """Telling lines above the cursor's line, the last ones."""
        return telling(self.prefix.rpartition("\n")[0])[-FAR_LINES:]

    @cached_property
    def below(self) -> list[str]:
        """Telling lines below the cursor's line, the first ones."""
        return telling(self.suffix.partition("\n")[2])[:FAR_LINES]

    @cached_property
    def head_of_suffix(self) -> str:
        """The first visible characters after the cursor."""
        return squeeze(self.suffix[: 40 * ANCHOR_CHARS])[:ANCHOR_CHARS]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an earlier cursor is in a later view's text."""

    start: int
    end: int | None
    """Where that goes on which stood after the earlier cursor; None where it is not found."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    start: int
    end: int | None
    above: list[str]
    below: list[str]
    near: int
    """Lines right above that are the same."""
    same_above: int
    same_below: int


def find_place(earlier: View, later: View) -> Place | None:
    """The earlier cursor in `later.text`; None where it is not there, or it is not sure where."""
    anchor = earlier.anchor
    if anchor is None or anchor not in later.squeezed or not _may_be_same_file(earlier, later):
        return None
    starts = _starts(earlier, later, anchor)
    found = sorted((_weigh(earlier, later, at) for at in starts), key=_goodness, reverse=True)
    if not found or not _is_sure(earlier, later, found[0]):
        return None
    if len(found) > 1 and not _clearly_better(found[0], found[1]):
        return None
    return Place(found[0].start, found[0].end)


def telling(text: str) -> list[str]:
    """Lines that say something, without white space."""
    return [line for line in map(squeeze, text.split("\n")) if len(_WORD_CHARACTER.findall(line)) >= _TELLING]


def _may_be_same_file(earlier: View, later: View) -> bool:
    return earlier.path is None or later.path is None or _plain(earlier.path) == _plain(later.path)


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")


def _starts(earlier: View, later: View, anchor: str) -> list[int]:
    """Positions in `later.text` that could be the earlier cursor."""
    starts: list[int] = []
    at = later.squeezed.find(anchor)
    while at >= 0 and len(starts) <= MAX_CANDIDATES:
        start = _after_blanks(earlier, later, later.positions[at + len(anchor) - 1] + 1)
        if start is not None:
            starts.append(start)
        at = later.squeezed.find(anchor, at + 1)
    return starts if len(starts) <= MAX_CANDIDATES else []


def _after_blanks(earlier: View, later: View, at: int) -> int | None:
    """Behind the white space that stood before the earlier cursor; None where the line begins differently now."""
    blanks = earlier.prefix[len(earlier.prefix.rstrip(BLANKS)) :]
    text = later.text
    if text.startswith(blanks, at):
        at += len(blanks)
    else:
        for _ in range(blanks.count("\n")):
            at = _end_of_blanks(text, at)
            if not text.startswith("\n", at):
                return None
            at += 1
        if blanks and not blanks.endswith("\n"):
            indented = _end_of_blanks(text, at)
            if indented == at and "\n" in blanks:
                return None  # another line stands there now
            at = indented
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return at if _same_line(squeeze(line), squeeze(earlier.cursor_line), earlier, later, at) else None


def _same_line(line: str, before_cursor: str, earlier: View, later: View, at: int) -> bool:
    """Whether the line up to `at` is the earlier cursor's; a window may begin within it."""
    if line == before_cursor:
        return True
    cut_later = later.text.rfind("\n", 0, at) < 0 and before_cursor.endswith(line)
    return cut_later or ("\n" not in earlier.prefix and line.endswith(before_cursor))


def _end_of_blanks(text: str, at: int) -> int:
    found = _LINE_BLANKS.match(text, at)
    return found.end() if found else at


def _weigh(earlier: View, later: View, start: int) -> _Candidate:
    above = telling(later.text[: start - len(earlier.cursor_line)].rpartition("\n")[0])[-FAR_LINES:]
    end = _end(earlier, later, start)
    below = telling(later.text[start if end is None else end :].partition("\n")[2])[:FAR_LINES]
    near = LCSseq.similarity(earlier.above[-NEAR_LINES:], above[-NEAR_LINES:])
    same_above, same_below = LCSseq.similarity(earlier.above, above), LCSseq.similarity(earlier.below, below)
    return _Candidate(start, end, above, below, near, same_above, same_below)


def _is_sure(earlier: View, later: View, found: _Candidate) -> bool:
    named = earlier.path is not None and later.path is not None
    share = SURE_SHARE_NAMED if named else SURE_SHARE
    if found.near < NEAR_SHARE * min(NEAR_LINES, len(earlier.above), len(found.above)):
        return False
    if found.same_above < share * min(len(earlier.above), len(found.above)):
        return False
    if named:
        return found.same_above + found.same_below >= 1 or found.end is not None
    if found.same_below < share * min(len(earlier.below), len(found.below)):
        return False
    same = found.same_above + found.same_below
    if same < SURE_LINES:
        return False
    return not _any_changed(earlier.above, found.above) and not _any_changed(earlier.below, found.below)


def _any_changed(before: list[str], after: list[str]) -> bool:
    """Whether some line is at its place and a little different. Not one that merely goes on, or ends sooner."""
    return any(
        fuzz.ratio(one, other) >= ALIKE and not one.startswith(other) and not other.startswith(one)
        for what, start, end, from_, to in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if what == "replace"
        for one, other in zip(before[start:end], after[from_:to], strict=False)
    )


def _goodness(candidate: _Candidate) -> tuple[int, int, int]:
    return candidate.near, candidate.same_above, candidate.same_below


def _clearly_better(best: _Candidate, second: _Candidate) -> bool:
    return best.near >= second.near + MARGIN_LINES


def _end(earlier: View, later: View, start: int) -> int | None:
    """Where the earlier suffix goes on in `later.text`; None where that is not found."""
    head = earlier.head_of_suffix
    if not head:
        return None
    squeezed_start = _count_visible(later, start)
    if len(head) < ANCHOR_MIN_CHARS:  # all that is left of the file, or too little to be found
        whole = len(later.squeezed) - len(head)
        if whole < squeezed_start or not later.squeezed.endswith(head) or len(squeeze(earlier.suffix)) > len(head):
            return None
        return _begin_of(earlier, later, start, whole)
    ends: list[int] = []
    at = later.squeezed.find(head, squeezed_start)
    while at >= 0 and len(ends) < MAX_CANDIDATES:
        end = _begin_of(earlier, later, start, at)
        ends.extend([] if end is None else [end])
        at = later.squeezed.find(head, at + 1)
    if not ends:
        return None
    return max(ends, key=lambda end: (_goes_on(earlier, later, end), -end))


def _goes_on(earlier: View, later: View, end: int) -> int:
    """How many of the lines right below are the same."""
    below = telling(later.text[end : end + 100 * NEAR_LINES].partition("\n")[2])
    return LCSseq.similarity(earlier.below[:NEAR_LINES], below[:NEAR_LINES])


def _count_visible(view: View, start: int) -> int:
    """Index in `squeezed` of the first character at or after `start`."""
    low, high = 0, len(view.positions)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if view.positions[middle] < start else (low, middle)
    return low


def _begin_of(earlier: View, later: View, start: int, at: int) -> int | None:
    """Position of the earlier suffix that goes on with squeezed character `at`; None where its line began differently.

    The white space before it is the suffix's as far as it stood there before.
    """
    position = later.positions[at]
    blanks = earlier.suffix[: len(earlier.suffix) - len(earlier.suffix.lstrip(BLANKS))]
    begin = len(later.text[:position].rstrip(BLANKS))
    if "\n" not in blanks:  # something stood on the cursor's own line
        return max(start, position - len(blanks)) if later.text[:position].endswith(blanks) else max(start, begin)
    if "\n" not in later.text[begin:position] and position > 0:
        return None
    return max(start, begin)
