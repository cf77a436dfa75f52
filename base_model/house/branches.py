"""Where the ways of a module part: what a reader who does not know the team's taste cannot know.

In: a module with its choices. Out: the characters at which another way would have gone on differently, and with
them the best that a model without knowledge of the taste could do.
"""

from collections import Counter

from base_model.house.draft import Module


def branch_offsets(module: Module) -> Counter[int]:
    """For each character of the source at which other ways turn away: how many do.

    A way that merely goes on where the written one has ended turns away at the character after it.
    """
    offsets: Counter[int] = Counter()
    for choice in module.choices:
        written = module.source[choice.start : choice.end]
        for other in choice.others:
            offsets[choice.start + _common(written, other)] += 1
    return offsets


def guess_chance(offsets: Counter[int], start: int, end: int) -> float:
    """The chance that ``source[start:end]`` is written right by someone who knows all but the taste."""
    chance = 1.0
    for offset, others in offsets.items():
        if start <= offset < end:
            chance /= 1 + others
    return chance


def _common(left: str, right: str) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
