"""Which waiting experience makes up the mini-batches: none of accepts alone, or rejects alone, while both wait. Pure.

A mini-batch of one label tells little: where its groups have no baseline of their own, everything in it moves one way.
Order is kept wherever it is mixed already, so that nobody waits long: what is put off comes first the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from shared.contracts.experience import Label


def one_sided(labels: Sequence[Label]) -> bool:
    """Whether several are all of one label."""
    return len(labels) > 1 and len(set(labels)) == 1


def chosen(labels: Sequence[Label], count: int) -> list[int]:
    """Places of the `count` to take of those that wait, in order: the first, or a mixture where these are one-sided.

    The other label comes in by its share of what waits, at least once and never with all places.
    """
    first = list(range(min(count, len(labels))))
    others = [place for place in range(len(first), len(labels)) if labels[place] != labels[0]]
    if not one_sided(labels[: len(first)]) or not others:
        return first
    share = round(len(first) * len(others) / len(labels))
    taken = others[: max(1, min(share, len(first) - 1))]
    return first[: len(first) - len(taken)] + taken


def dealt(labels: Sequence[Label], size: int) -> list[int]:
    """An order of all places in which no mini-batch of `size` is one-sided if that can be had.

    The order stays where no mini-batch is. Else both labels are spread evenly, each in its own order.
    """
    places = list(range(len(labels)))
    if len(set(labels)) < 2 or not any(one_sided(labels[start : start + size]) for start in places[::size]):
        return places
    accepted = [place for place in places if labels[place] == "accepted"]
    rejected = [place for place in places if labels[place] != "accepted"]
    return _spread(accepted, rejected)


def _spread(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Both in their own order, each as evenly as it goes."""
    positions = chain(
        (((rank + 0.5) / len(one), place) for rank, place in enumerate(one)),
        (((rank + 0.5) / len(other), place) for rank, place in enumerate(other)),
    )
    return [place for _, place in sorted(positions)]
