"""A prompt that the gateway writes itself, made short enough for the engine. Pure.

Other files go first, whole ones from the last; then the beginning of the prefix, then the end of the suffix. The text
around the cursor always stays: a quarter of the room is the suffix's, where it needs as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.fim import NO_SUFFIX, Snippet, render

_SUFFIX_SHARE = 4
_STEPS = 8
"""The prefix is cut in steps of this part of the room: its beginning, and with it what the engine's prefix cache
holds, stays the same over many keystrokes."""
_MARKS = 32
"""Characters that a snippet's own marks take, about."""


@dataclass(frozen=True, slots=True)
class FimSource:
    """What a prompt is made of."""

    family: str
    prefix: str
    suffix: str
    path: str | None = None
    repo: str | None = None
    language: str | None = None
    snippets: tuple[Snippet, ...] = ()

    def prompt(self, max_chars: int) -> str:
        """At most about `max_chars` characters of text, in the family's template."""
        prefix, suffix = fit(self.prefix, self.suffix or NO_SUFFIX, max_chars)
        snippets = fitting(self.snippets, max_chars - len(prefix) - len(suffix))
        return render(
            self.family,
            prefix,
            suffix,
            path=self.path,
            repo=self.repo,
            language=self.language,
            snippets=snippets,
        )

    def fits(self, max_chars: int) -> bool:
        """Whether nothing has to be left out."""
        others = sum(map(_size, self.snippets))
        return len(self.prefix) + len(self.suffix or NO_SUFFIX) + others <= max_chars


def fit(prefix: str, suffix: str, max_chars: int) -> tuple[str, str]:
    """The end of `prefix` and the beginning of `suffix`, together at most `max_chars`, cut between lines."""
    if len(prefix) + len(suffix) <= max_chars:
        return prefix, suffix
    suffix = _beginning(suffix, max(max_chars // _SUFFIX_SHARE, max_chars - len(prefix)))
    return _end(prefix, max_chars - len(suffix), max(1, max_chars // _STEPS)), suffix


def fitting(snippets: Iterable[Snippet], room: int) -> list[Snippet]:
    """As many of the first snippets as have room."""
    kept: list[Snippet] = []
    for snippet in snippets:
        room -= _size(snippet)
        if room < 0:
            break
        kept.append(snippet)
    return kept


def _end(text: str, room: int, step: int) -> str:
    excess = len(text) - room
    if excess <= 0:
        return text
    dropped = -(-excess // step) * step
    line = text.find("\n", dropped - 1, dropped + step) + 1
    return text[line or dropped :]


def _beginning(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    line = text.rfind("\n", room // 2, room) + 1
    return text[: line or room]


def _size(snippet: Snippet) -> int:
    return len(snippet.text) + len(snippet.path or "") + _MARKS
