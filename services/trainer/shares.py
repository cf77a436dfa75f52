"""Which waiting experience the next mini-batches take, so that no key fills them alone. Pure.

Of each mini-batch's places a key gets at most `max_share`, as long as somebody else's experience waits too. What is
over that waits for the next one: nothing is lost, and an install with a single user never notices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def fair(keys: Sequence[str], count: int, minibatch_size: int, max_share: float) -> list[int]:
    """Positions in `keys` (the key of each waiting experience, in order) that go next, mini-batch by mini-batch.

    Up to `count`; fewer where only those are left that are over their share.
    """
    left = list(range(len(keys)))
    taken: list[int] = []
    while left and len(taken) < count:
        places = min(minibatch_size, count - len(taken))
        batch = _minibatch(keys, left, places, max_share)
        taken += batch
        chosen = set(batch)
        left = [position for position in left if position not in chosen]
        if len(batch) < places:
            break  # the next mini-batch would begin in the middle of this one
    return taken


def over(keys: Sequence[str], max_share: float) -> bool:
    """Whether one key has more than its share of these places."""
    return bool(keys) and max(Counter(keys).values()) > _limit(len(keys), max_share)


def _minibatch(keys: Sequence[str], waiting: Sequence[int], places: int, max_share: float) -> list[int]:
    alone = len({keys[position] for position in waiting}) == 1
    limit = places if alone else _limit(places, max_share)
    taken: list[int] = []
    of_key: Counter[str] = Counter()
    for position in waiting:
        if len(taken) == places:
            break
        if of_key[keys[position]] < limit:
            of_key[keys[position]] += 1
            taken.append(position)
    return taken


def _limit(places: int, max_share: float) -> int:
    return max(1, math.ceil(max_share * places))
