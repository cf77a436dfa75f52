"""Builds the experience of one resolved display: shown sample, siblings of the same request, reference. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from services.ingest.evidence import Evidence, visible_chars
from services.ingest.languages import language_of
from services.ingest.outcomes import Part
from services.ingest.rewards import RewardWeights, reward_of
from services.ingest.secrets import has_mark
from services.ingest.settled import typed_out
from services.ingest.shown import Fit, Span, credited_tokens, locate
from shared.contracts.experience import Experience, Label, Reference, Sample
from shared.contracts.generation import Generation


@dataclass(frozen=True, slots=True)
class Display:
    """One resolved outcome, as the pure centre sees it."""

    outcome_id: str
    project_id: str
    label: Label
    shown_text: str
    """What the editor displayed."""
    credited_tokens: int
    first_event_at: datetime
    filepath: str
    settled: str | None
    """What the developer typed there instead, if known."""
    already_labelled: bool
    """Another display of the same sample went to the trainer."""
    accepted_part: Part | None = None
    """Only this much was accepted; `shown_text` is that part."""
    language: str | None = None
    """Where it is known otherwise than by the file's name."""
    final_text: str | None = None
    """What stands in the place in the end, as the client told."""
    shown_again: bool = False
    """The same sample was displayed again later: what became of that says more."""
    counted: bool = False
    """It was another choice's sibling, with a reward, and went to the trainer as that."""
    quarantined: bool = False
    """Nothing is learned from its key."""
    evidence: Evidence | None = None
    """Everything that is known, where that is more than what stands here."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What follows from a display."""

    experience: Experience
    withheld: str | None
    """Why the trainer does not get it, else None."""
    counted: tuple[str, ...] = ()
    """Generations among the siblings whose reward the trainer will know."""


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A generation as `services.ingest.shown` looks at it."""

    text: str
    token_ids: list[int]
    text_offsets: list[int]
    finish_reason: str
    stop_string: str | None


def experience_id(outcome_id: str) -> str:
    """One outcome makes one experience, so its id follows."""
    return f"exp-{outcome_id}"


def resolve(
    display: Display, generation: Generation, siblings: Sequence[Generation], weights: RewardWeights
) -> Resolution:
    """The experience of `display`, and why it is withheld if it is."""
    span = locate(generation.text, display.shown_text)
    experience = Experience(
        experience_id=experience_id(display.outcome_id),
        generation_id=generation.generation_id,
        project_id=display.project_id,
        key_id=generation.key_id,
        language=display.language or language_of(display.filepath),
        feedback_at=display.first_event_at,
        prompt=generation.prompt,
        prompt_token_ids=generation.prompt_token_ids,
        sampling=generation.sampling,
        shown=_sample(generation, display.credited_tokens),
        shown_text=_text_in_place(generation, display, span),
        label=display.label,
        accepted_part=display.accepted_part,
        reward=_reward(display, weights),
        reference=_reference(generation, display, span),
        siblings=_siblings(siblings, _text_in_place(generation, display, span)),
        reward_spec=weights.spec,
    )
    withheld = _withheld(display, generation, span, weights)
    return Resolution(experience, withheld, () if withheld else _counted(experience, siblings))


def _reward(display: Display, weights: RewardWeights) -> float:
    evidence = display.evidence or Evidence(
        display.label, display.accepted_part, shown_chars=visible_chars(display.shown_text)
    )
    reward = reward_of(evidence, weights)
    return weights.silence if reward is None else reward.value


def _withheld(display: Display, generation: Generation, span: Span | None, weights: RewardWeights) -> str | None:
    if display.quarantined:
        return "quarantined"
    if generation.untrainable is not None:
        return generation.untrainable
    if display.already_labelled:
        return "already_labelled"
    if display.counted:
        return "counted_as_sibling"
    if display.credited_tokens == 0 or span is None:
        return "nothing_credited"
    if display.evidence is not None and reward_of(display.evidence, weights) is None:
        return "no_reward"  # a silent client's, and no weight decides what it is worth that the text was written
    if display.label == "rejected" and span.fit is Fit.LATER:
        return "typed_ahead"  # the beginning was typed as suggested: it must not be punished with the rest
    if display.label == "rejected" and display.shown_again:
        return "shown_again"
    if display.label == "rejected" and not weights.typed_out and _was_typed_out(display):
        return "typed_out"  # rejected, and then typed by hand: the two contradict each other, and no weight decides
    return None


def _was_typed_out(display: Display) -> bool:
    if display.evidence is not None and display.evidence.typed_out is not None:
        return display.evidence.typed_out
    return bool(display.settled) and typed_out(display.settled or "", display.shown_text)


def _text_in_place(generation: Generation, display: Display, span: Span | None) -> str:
    """The displayed text with what was typed ahead of it: what stands at the prompt's cursor when it is accepted."""
    return generation.text[: span.end] if span and span.fit is Fit.LATER else display.shown_text


def _reference(generation: Generation, display: Display, span: Span | None) -> Reference | None:
    if display.final_text and display.final_text.strip():
        return None if has_mark(display.final_text) else Reference(kind="edited", text=display.final_text)
    if display.accepted_part is not None and not _is_rest_of_line(display):
        return None  # siblings are compared by lines: less than one tells nothing about them
    if display.label == "accepted" and not display.settled:
        return Reference(kind="accepted", text=_text_in_place(generation, display, span))
    if not display.settled or has_mark(display.settled):
        return None  # what the developer typed holds a secret: nothing is compared with what stands in its place
    return Reference(kind="settled", text=display.settled)


def _is_rest_of_line(display: Display) -> bool:
    return display.accepted_part == "line" and "\n" not in display.shown_text


def _siblings(generations: Sequence[Generation], shown_text: str) -> list[Sample]:
    """Other choices of the request, credited for what the editor would have shown of them: no more is compared.

    Where it showed one line, that is their first; else all of their text.
    """
    one_line = "\n" not in shown_text.rstrip("\r\n")
    return [_sample(one, _comparable_tokens(one, one_line)) for one in generations if one.untrainable is None]


def _counted(experience: Experience, siblings: Sequence[Generation]) -> tuple[str, ...]:
    """Those compared with a known text, silent, or the same as what was rejected: of others nothing is known."""
    usable = [one for one in siblings if one.untrainable is None]
    if experience.reference is not None:
        return tuple(one.generation_id for one in usable)
    same = {"", _first_line(experience.shown_text), _first_line(experience.shown.text)}
    return tuple(one.generation_id for one in usable if _first_line(one.text) in same)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()


def _comparable_tokens(generation: Generation, one_line: bool) -> int:
    end = len(generation.text.partition("\n")[0].removesuffix("\r")) if one_line else len(generation.text)
    reason, stops = generation.stop_reason, generation.sampling.stop
    sampled = _Sampled(
        generation.text,
        generation.token_ids,
        generation.text_offsets,
        generation.finish_reason,
        stop_string=reason if isinstance(reason, str) and reason in stops else None,
    )
    return credited_tokens(sampled, Span(Fit.PREFIX, 0, end))


def _sample(generation: Generation, credited: int) -> Sample:
    return Sample(
        text=generation.text,
        token_ids=generation.token_ids,
        logprobs=generation.logprobs,
        credited_tokens=credited,
        policy_version=generation.policy_version,
    )
