"""Simulated typing sessions: several files of one developer, open in turns, and every request that the editor sends.

The rates are chosen, not measured on people. A developer rewrites functions line by line, pauses (a request),
takes or refuses what is suggested, takes something wrong and removes it later, edits lines above, switches files,
converts line ends or indentation.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from base_model.house import HARBOR, TEAM_SEEDS, generate_module
from benchmarks.settled.document import Document, Snapshot, Window
from clients.developer.moments import FunctionSpan, FunctionWalk, functions, walk_function
from shared.fim import FimPrompt

WINDOWS = (Window(3000, 900, True), Window(3000, 900, False), Window(2000, 2000, True), Window(9000, 2400, True))
"""Prefix and suffix in characters, some 1,024 tokens; the last one is like llama.vim's 256 and 64 lines."""
SUGGESTED = {"true": 0.35, "longer": 0.1, "partly": 0.25, "wrong": 0.3}
TAKES_TRUE, TAKES_OTHER = 0.75, 0.1
UNDO_AT_ONCE = 0.5
EDIT_ABOVE, SWITCH, CONVERT, PAUSE_LONG = 0.12, 0.12, 0.01, 0.06

Suggestion = Literal["true", "longer", "partly", "wrong"]


@dataclass(slots=True)
class Request:
    """One request, and what nobody but the simulation knows."""

    at_s: float
    file: int
    prompt: FimPrompt
    cursor: int
    window: tuple[int, int]
    snapshot: Snapshot
    suggested: str
    accepted_ids: array[int] | None = None
    """Characters that an accept wrote; None: it was refused, and the developer typed."""
    rest: str = ""
    """What the developer had in mind for the rest of the line."""


@dataclass(slots=True)
class Session:
    """One developer at work. `run` fills `requests`."""

    rng: random.Random
    named: bool
    window: Window
    files: list[Document]
    clock_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    _undo_later: list[tuple[Document, array[int], int, str]] = field(default_factory=list)

    def run(self) -> None:
        """All tasks, a line of one, then perhaps a line of another."""
        work = {number: self._work(number) for number in range(len(self.files))}
        current = self.rng.choice(list(work))
        while work:
            if next(work[current], None) is None:
                del work[current]
            if work and (current not in work or self.rng.random() < SWITCH):
                current = self.rng.choice(list(work))
                self.clock_s += self.rng.uniform(2, 60)

    def _work(self, number: int) -> Iterator[bool]:
        document = self.files[number]
        spans, lines = functions(document.text), document.text.split("\n")
        chosen = sorted(self.rng.sample(spans, min(len(spans), 12)), key=lambda span: -span.first)
        if self.rng.random() < 0.5:  # from the file's end up, or from its beginning down
            chosen.reverse()
        for head in ["\n".join(lines[span.first : span.first + 2]) for span in chosen]:
            again = [span for span in functions_safely(document.text) if _begins_with(document, span, head)]
            if len(again) == 1:
                yield from self._write(number, document, again[0])

    def _write(self, number: int, document: Document, span: FunctionSpan) -> Iterator[bool]:
        """Remove a function (or, for an edit, one line at a time) and type it again."""
        walk = walk_function(document.text, span, self.rng)
        lines = document.text.split("\n")
        offsets = [sum(len(line) + 1 for line in lines[:row]) for row in range(len(lines) + 1)]
        start, end = offsets[span.first], offsets[span.end] - 1
        before = document.ids[start - 1] if start else None
        if walk.kind == "typing":
            document.delete(start, min(end, len(document.text)))
            yield from self._type_lines(number, document, walk, before)
            return
        for line in walk.lines:
            if line.pauses:
                try:
                    left = document.ids[document.text.index(line.text, start) - 1]
                except ValueError:
                    continue
                at = document.position(left) + 1
                document.delete(at, at + len(line.text))
                yield from self._type_line(number, document, left, line.text, line.pauses)

    def _type_lines(self, number: int, document: Document, walk: FunctionWalk, before: int | None) -> Iterator[bool]:
        last = before
        for index, line in enumerate(walk.lines):
            if index:
                last = document.insert(self._behind(document, last), "\n")[0]
            yield from self._type_line(number, document, last, line.text, line.pauses)
            at = document.text.find("\n", self._behind(document, last))
            at = len(document.text) if at < 0 else at
            last = document.ids[at - 1] if at else last

    def _behind(self, document: Document, left: int | None) -> int:
        if left is None:
            return 0
        try:
            return document.position(left) + 1
        except ValueError:  # the developer has removed it meanwhile
            return len(document.text)

    def _type_line(
        self,
        number: int,
        document: Document,
        left: int | None,
        text: str,
        pauses: tuple[int, ...],
    ) -> Iterator[bool]:
        at = self._behind(document, left)
        typed = 0
        for column in pauses:
            if column < typed:
                continue
            document.insert(at + typed, text[typed:column])
            typed = column
            took = self._ask(number, document, at + typed, text[column:])
            if took:
                typed = len(text)
                break
            self.clock_s += self.rng.uniform(0.5, 4)
        if typed < len(text):
            document.insert(at + typed, text[typed:])
        self.clock_s += self.rng.uniform(1, 8) + (self.rng.uniform(60, 300) if self.rng.random() < PAUSE_LONG else 0)
        self._meanwhile(document)
        yield True

    def _ask(self, number: int, document: Document, cursor: int, rest: str) -> bool:
        """One request. Whether the rest of the line was written by accepting."""
        kind: Suggestion = self.rng.choices(list(SUGGESTED), list(SUGGESTED.values()))[0]  # type: ignore[assignment]
        text = self._suggest(kind, document, rest)
        request = Request(
            self.clock_s,
            number,
            self.window.prompt(document, cursor, named=self.named),
            cursor,
            self.window.bounds(document.text, cursor),
            document.snapshot(),
            text,
            rest=rest,
        )
        self.requests.append(request)
        self.clock_s += self.rng.uniform(0.3, 2)
        right = kind == "true"
        if not text.strip() or self.rng.random() > (TAKES_TRUE if right else TAKES_OTHER):
            return False
        request.accepted_ids = document.insert(cursor, text)
        if right:
            return True
        return self._repent(document, request.accepted_ids, text, rest)

    def _repent(self, document: Document, ids: array[int], text: str, rest: str) -> bool:
        """Something else was accepted: what is wrong of it is put right at once, or some lines later."""
        common = next(
            (at for at, (a, b) in enumerate(zip(text, rest, strict=False)) if a != b), min(len(text), len(rest))
        )
        correction = (document, ids, common, rest)
        if self.rng.random() < UNDO_AT_ONCE:
            _correct(*correction)
        else:
            self._undo_later.append(correction)
        return True

    def _suggest(self, kind: Suggestion, document: Document, rest: str) -> str:
        if kind == "true":
            return rest
        other = self.rng.choice([line for line in document.text.split("\n") if len(line.strip()) > 8]).strip()
        if kind == "longer":
            return f"{rest}\n        {other}"
        return rest[: max(1, len(rest) // 2)] + other[-6:] if kind == "partly" else other

    def _meanwhile(self, document: Document) -> None:
        """Everything else that happens to a file."""
        if self._undo_later and self.rng.random() < 0.3:
            _correct(*self._undo_later.pop(0))
        if self.rng.random() < EDIT_ABOVE:
            self._edit_above(document)
        if self.rng.random() < CONVERT:
            document.crlf = not document.crlf
        if self.rng.random() < CONVERT:
            document.tabs = not document.tabs

    def _edit_above(self, document: Document) -> None:
        """A new line, a changed one or one less, near the beginning or anywhere."""
        lines = document.text.split("\n")
        row = self.rng.randrange(max(1, len(lines) // self.rng.choice((1, 4))))
        at = sum(len(line) + 1 for line in lines[:row])
        action = self.rng.choice(("insert", "change", "delete"))
        if action == "insert":
            document.insert(at, self.rng.choice(("# TODO: check\n", "LIMIT = 10\n", "import json\n")))
        elif action == "change" and lines[row].lstrip().startswith("#"):
            document.insert(at + len(lines[row]), " again")
        elif action == "delete" and lines[row].startswith(("#", "import json", "LIMIT")):
            document.delete(at, at + len(lines[row]) + 1)


def make_session(seed: int) -> Session:
    """Three files, two of them alike but for a name, and one of which a part is in there twice."""
    rng = random.Random(f"settled-{seed}")
    first = _source(rng, rng.randint(4, 9))
    files = [first, _renamed(first, rng), _source(rng, rng.randint(2, 6))]
    documents = [
        Document(f"house/file_{number}.py", text, rng.random() < 0.25, rng.random() < 0.15)
        for number, text in enumerate(files)
    ]
    return Session(rng, rng.random() < 0.5, rng.choice(WINDOWS), documents)


def functions_safely(source: str) -> list[FunctionSpan]:
    """As `functions`; none while the file has something in it that was accepted wrongly."""
    try:
        return functions(source)
    except SyntaxError:
        return []


def _begins_with(document: Document, span: FunctionSpan, head: str) -> bool:
    return "\n".join(document.text.split("\n")[span.first : span.first + 2]) == head


def _source(rng: random.Random, modules: int) -> str:
    sources = [generate_module(rng.choice(TEAM_SEEDS), HARBOR).source for _ in range(modules)]
    return "\n\n".join(source.strip("\n") for source in sources) + "\n"


def _renamed(source: str, rng: random.Random) -> str:
    """The same file for another thing, as people copy files."""
    old, new = rng.choice((("id", "code"), ("status", "phase"), ("row", "entry")))
    kept = source.split("\n")
    return "\n".join(line.replace(old, new) if rng.random() < 0.7 else line for line in kept)


def _correct(document: Document, ids: array[int], common: int, rest: str) -> None:
    """Make `rest` of accepted text, of which the first `common` characters are right. Not where some of it is gone."""
    if any(one not in document.ids for one in ids):
        return
    at = document.position(ids[0]) + common
    wrong = set(ids[common:])
    for place in reversed([place for place, one in enumerate(document.ids) if one in wrong]):
        document.delete(place, place + 1)
    document.insert(at, rest[common:])
