"""Which generation an event speaks of. Pure.

Where the client names a generation that was made for its key, it is that one. Others send no id of ours, so the
prompt's digest and the key select the candidates and the displayed text decides. A wrong join is worse than none: where
the choice would matter and cannot be made, it is `Ambiguous`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.ingest.shown import Fit, Span, credited_tokens, locate
from shared.fim import insert_before_suffix

NO_GENERATION = "no_generation"
TEXT_DIFFERS = "text_differs"
NOTHING_SHOWN = "nothing_shown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the joiner looks at in a generation. T = number of sampled tokens."""

    generation_id: str
    choice_index: int
    created_at: datetime
    project_id: str
    policy_version: int
    prompt: str
    text: str
    token_ids: list[int]
    text_offsets: list[int]
    finish_reason: str
    stop_string: str | None
    labelled: bool
    """An outcome of another display exists already."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The event speaks of this generation; its first `credited_tokens` tokens were displayed."""

    candidate: Candidate
    credited_tokens: int


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several generations could have been displayed, and they differ in the displayed tokens."""

    reason: str = "several_generations"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """None of the candidates fits (yet)."""

    reason: str


Match = Joined | Ambiguous | Unmatched


def match_named(candidates: Sequence[Candidate]) -> Match:
    """The generation that the client named, all of its text displayed."""
    if not candidates:
        return Unmatched(NO_GENERATION)
    named = candidates[0]
    if not named.text.strip():
        return Unmatched(NOTHING_SHOWN)
    return Joined(named, credited_tokens(named, Span(Fit.PREFIX, 0, len(named.text))))


def match(shown: str, candidates: Sequence[Candidate]) -> Match:
    """Decide between generations of the same key and prompt.

    The best fit wins; among equals those that no display has claimed yet; among those that agree in the displayed
    tokens the newest, and choice 0 before others.
    """
    if not shown.strip():
        return Unmatched(NOTHING_SHOWN)
    if not candidates:
        return Unmatched(NO_GENERATION)
    located = [(candidate, span) for candidate in candidates if (span := locate(candidate.text, shown))]
    return _choose(located) if located else Unmatched(TEXT_DIFFERS)


def match_typed_ahead(shown: str, prompt_digests: Collection[bytes], candidates: Iterable[Candidate]) -> Match:
    """Decide between generations whose prompt the developer had typed on from when the completion was displayed.

    One request then serves a second display, whose prompt was never sent: it is the first prompt with the beginning
    of the generated text typed in. Its digest proves it.
    """
    located = [
        (candidate, span)
        for candidate in candidates
        if (span := locate(candidate.text, shown)) and _typed_into(candidate, span, prompt_digests)
    ]
    return _choose(located) if located else Unmatched(NO_GENERATION)


def _typed_into(candidate: Candidate, span: Span, prompt_digests: Collection[bytes]) -> bool:
    """Whether one of the digests is that of the prompt with the text before `span` typed in (blanks may be trimmed)."""
    typed = candidate.text[: span.start]
    while typed:
        prompt = insert_before_suffix(candidate.prompt, typed)
        if prompt is not None and hashlib.sha256(prompt.encode()).digest() in prompt_digests:
            return True
        if not typed[-1].isspace():
            return False
        typed = typed[:-1]
    return False


def _choose(located: list[tuple[Candidate, Span]]) -> Joined | Ambiguous:
    best: Fit = min(span.fit for _, span in located)
    equal = [(candidate, span) for candidate, span in located if span.fit is best]
    fresh = [pair for pair in equal if not pair[0].labelled] or equal
    credited = {candidate.generation_id: credited_tokens(candidate, span) for candidate, span in fresh}
    if len({tuple(c.token_ids[: credited[c.generation_id]]) for c, _ in fresh}) > 1:
        return Ambiguous()
    newest = max((candidate for candidate, _ in fresh), key=lambda c: (c.created_at, -c.choice_index))
    return Joined(newest, credited[newest.generation_id])
