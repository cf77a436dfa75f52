"""Holds the answers of `services.ingest.settled` against what the simulation knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from benchmarks.settled.sessions import Request, Session
from services.ingest.evidence import RETENTION_AFTER_S
from services.ingest.places import View, squeeze
from services.ingest.settled import retained, settled_between, typed_out, written_lines

HORIZON_S = 600.0
CLOSE = 0.15
"""A retention is right if it is so close to the true one."""


@dataclass(slots=True)
class Count:
    """What became of the cases of one kind."""

    answered: int = 0
    right: int = 0
    possible: int = 0
    """Cases whose truth some later request shows."""
    found: int = 0
    """Of these those that were answered rightly."""
    wrong: list[Any] = field(default_factory=list)
    missed: list[Any] = field(default_factory=list)

    def add(self, answered: bool, right: bool, possible: bool, case: Any = None) -> None:
        """Count one case."""
        self.answered += answered
        self.right += answered and right
        self.possible += possible
        self.found += possible and answered and right
        if answered and not right:
            self.wrong.append(case)
        if possible and not answered:
            self.missed.append(case)

    def figures(self, kind: str) -> list[dict[str, Any]]:
        """As lines of JSON."""
        shares = {"precision": (self.right, self.answered), "recall": (self.found, self.possible)}
        return [
            {
                "bench": "settled",
                "figure": figure,
                "kind": kind,
                "ours": round(hits / of, 4) if of else None,
                "cases": of,
            }
            for figure, (hits, of) in shares.items()
        ]


@dataclass(frozen=True)
class Case:
    """An earlier request and the later ones that may tell what became of it."""

    request: Request
    later: Sequence[Request]
    views: Sequence[View]

    @cached_property
    def view(self) -> View:
        """The earlier window."""
        return View.of(self.request.prompt)

    @cached_property
    def left(self) -> set[int]:
        """Characters before the cursor."""
        return set(self.request.snapshot.ids[: self.request.cursor])

    @cached_property
    def right(self) -> set[int]:
        """Characters after the cursor."""
        return set(self.request.snapshot.ids[self.request.cursor :])

    def truth(self, later: Request) -> tuple[int, int]:
        """Where in the later file it stands what was written at the cursor."""
        return later.snapshot.between(self.left, self.right)

    def true_line(self, later: Request) -> str | None:
        """The rest of the line, where the later request shows it finished and not empty."""
        if later.file != self.request.file:
            return None
        start, end = self.truth(later)
        text = later.snapshot.text
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
        if line_end < 0 or line_start <= later.cursor <= line_end or not _shows(later, line_start, line_end):
            return None
        return text[start : min(end, line_end)] if text[start : min(end, line_end)].strip() else None


def measure(sessions: Sequence[Session]) -> dict[str, Count]:
    """Counts by kind, over all requests of all sessions."""
    kinds = ["settled_text", "typed_out", *(f"retention_{after_s}s" for after_s in RETENTION_AFTER_S)]
    counts = {kind: Count() for kind in kinds}
    for session in sessions:
        views = [View.of(request.prompt) for request in session.requests]
        for at, request in enumerate(session.requests):
            later = session.requests[at + 1 :]
            case = Case(request, later, views[at + 1 :])
            if request.accepted_ids is None:
                _count_settled(case, counts)
            else:
                _count_settled(case, {"settled_text": counts["settled_text"]})
                for after_s in RETENTION_AFTER_S:
                    _count_retention(case, after_s, counts[f"retention_{after_s}s"])
    return counts


def _count_settled(case: Case, counts: dict[str, Count]) -> None:
    """The first later request that answers is what counts, as in the service."""
    near = [
        (q, view) for q, view in zip(case.later, case.views, strict=True) if q.at_s <= case.request.at_s + HORIZON_S
    ]
    truths = [truth for q, _ in near if (truth := case.true_line(q)) is not None]
    for later, view in near:
        settled = settled_between(case.view, view)
        if settled is not None:
            truth = case.true_line(later)
            right = truth is not None and squeeze(settled.line) == squeeze(truth)
            counts["settled_text"].add(True, right, bool(truths), (case.request, later, settled.line, truth))
            break
    else:
        settled = None
        counts["settled_text"].add(False, False, bool(truths), case.request)
    if "typed_out" in counts and case.request.suggested.strip():
        ours = settled is not None and typed_out(settled.line, case.request.suggested)
        true = any(written_lines(truth, case.request.suggested) for truth in truths[:1])
        counts["typed_out"].add(ours, true, true, (case.request, settled and settled.line))


def _count_retention(case: Case, after_s: int, count: Count) -> None:
    """The latest request up to that age that answers."""
    until = case.request.at_s + after_s
    later = [(q, view) for q, view in zip(case.later, case.views, strict=True) if q.at_s <= until]
    possible = any(_shows_place(case, q) for q, _ in later)
    for q, view in reversed(later):
        share = retained(case.request.suggested, case.view, view)
        if share is not None:
            true = _true_share(case.request, q) if q.file == case.request.file else None
            right = true is not None and abs(share - true) <= CLOSE
            count.add(True, right, possible, (case.request, q, share, true))
            return
    count.add(False, False, possible, case.request)


def _shows(later: Request, start: int, end: int) -> bool:
    return later.window[0] <= start and end < later.window[1]


def _shows_place(case: Case, later: Request) -> bool:
    if later.file != case.request.file:
        return False
    start, end = case.truth(later)
    return _shows(later, later.snapshot.text.rfind("\n", 0, start) + 1, end)


def _true_share(request: Request, later: Request) -> float:
    """Of the characters that were accepted (white space aside), how many are still in the file."""
    assert request.accepted_ids is not None
    visible = [one for one, c in zip(request.accepted_ids, request.suggested, strict=True) if not c.isspace()]
    there = set(later.snapshot.ids)
    return sum(one in there for one in visible) / len(visible)
