"""Experience whose mini-batch was not finite: it stays claimed and is tried again, in ever smaller company. Pure.

One culprit makes a whole mini-batch not finite, and which it is cannot be read off a gradient. So each failure halves
the mini-batch that an experience is tried in: after log2(minibatch_size) failures the culprit is alone, and the others
have been trained. Alone and not for the first time, it is given up. Counts are this process's own: after a restart the
search begins anew, which costs a few skipped steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.trainer import composition
from shared.contracts.experience import Label


class HeldBack:
    """How often the mini-batch of an experience was not finite."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def failures(self, experience_id: str) -> int:
        """0 for what was never held back."""
        return self._failures.get(experience_id, 0)

    def failed(self, experience_ids: Sequence[str]) -> list[str]:
        """These were in one mini-batch that was not finite; returns those to give up."""
        for experience_id in experience_ids:
            self._failures[experience_id] = self.failures(experience_id) + 1
        alone = len(experience_ids) == 1
        return [one for one in experience_ids if alone and self._failures[one] > 1]

    def done(self, experience_ids: Iterable[str]) -> None:
        """Forget what was dealt with."""
        for experience_id in experience_ids:
            self._failures.pop(experience_id, None)


def minibatches(labels: Sequence[Label], failures: Sequence[int], size: int) -> list[list[int]]:
    """Places of each mini-batch: `size` of them, half as many for each failure, never two numbers of failures together.

    Within that both labels are mixed (`composition.dealt`).
    """
    batches = []
    for level in sorted(set(failures)):
        own = [place for place, count in enumerate(failures) if count == level]
        smaller = max(1, size >> level)
        order = [own[place] for place in composition.dealt([labels[place] for place in own], smaller)]
        batches += [order[start : start + smaller] for start in range(0, len(order), smaller)]
    return batches
