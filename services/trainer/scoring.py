"""What is known about the reward of a completion that nobody was shown. Pure.

In: the experience of the shown completion and the sibling's text. Out: its reward, or None where nothing is known:
masked out, never guessed ("different from the rejected one" is no virtue).
"""

from __future__ import annotations

from rapidfuzz.distance import Levenshtein

from shared.contracts.experience import Experience, RewardSpec


def several_lines(shown_text: str) -> bool:
    """Whether the editor displayed more than the rest of the line at the cursor."""
    return "\n" in shown_text.rstrip("\r\n")


def displayed(text: str, *, multiline: bool) -> str:
    """What the editor would have displayed of a sibling: its first line, where the shown text had one line."""
    return text if multiline else text.partition("\n")[0].removesuffix("\r")


def similarity(text: str, reference: str) -> float:
    """1 - Levenshtein distance / longer length of the two without surrounding space: 1 when equal, 0 when unlike."""
    return Levenshtein.normalized_similarity(text.strip(), reference.strip())


def known_text(experience: Experience) -> str | None:
    """What is known to be right at this place: the accepted or settled text."""
    if experience.reference is not None:
        return experience.reference.text
    whole = experience.label == "accepted" and experience.accepted_part is None
    return experience.shown_text if whole else None


def sibling_reward(experience: Experience, text: str) -> float | None:
    """Reward of a sibling whose sampled text is `text`, or None when unknown.

    Nothing to show is silence; the rejected text shares its reward; else the similarity to the known text decides.
    """
    multiline = several_lines(experience.shown_text)
    seen, spec = displayed(text, multiline=multiline), experience.reward_spec
    if not seen.strip():
        return spec.silence
    if experience.label == "rejected" and seen.strip() in _rejected_texts(experience, multiline):
        return experience.reward
    known = known_text(experience)
    return None if known is None else _graded(spec, similarity(seen, displayed(known, multiline=multiline)))


def _rejected_texts(experience: Experience, multiline: bool) -> set[str]:
    """As displayed, and as sampled: where the developer typed ahead, the display started later."""
    return {experience.shown_text.strip(), displayed(experience.shown.text, multiline=multiline).strip()}


def _graded(spec: RewardSpec, alike: float) -> float:
    spread = spec.accepted - spec.rejected
    return float(spec.sibling_weight * (spec.rejected + spread * alike**spec.similarity_power))
