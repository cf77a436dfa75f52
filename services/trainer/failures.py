"""What to do after rounds that the learner could not train. Pure.

Each failure doubles the pause and halves the next round: if one experience is the cause, it ends up alone in a round
and is put aside; if the learner itself is, the pauses grow and little is put aside.
"""

from __future__ import annotations


class Failures:
    """Failed rounds since the last one that worked. Times are of one monotonic clock."""

    def __init__(self, *, pause_s: float, max_pause_s: float, give_up_after: int) -> None:
        self._pause_s = pause_s
        self._max_pause_s = max_pause_s
        self._give_up_after = give_up_after
        self._until_s = float("-inf")
        self.in_row = 0

    def failed(self, now_s: float) -> None:
        """One more."""
        self.in_row += 1
        self._until_s = now_s + min(self._max_pause_s, self._pause_s * 2.0 ** min(self.in_row, 30))

    def cleared(self) -> None:
        """A round worked, or the culprit is out of the way."""
        self.in_row = 0
        self._until_s = float("-inf")

    def pausing(self, now_s: float) -> bool:
        """Whether it is too early for the next try."""
        return now_s < self._until_s

    def limit(self, wanted: int) -> int:
        """How many entries the next round may take, 1 at least."""
        return max(1, wanted >> min(self.in_row, 30))

    @property
    def hopeless(self) -> bool:
        """Whether an experience that is alone in a failing round should be put aside."""
        return self.in_row >= self._give_up_after
