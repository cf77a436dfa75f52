"""Stop strings without a delay. Pure.

vLLM holds back as many characters as its longest stop string has, in case one begins: with Continue's list, 15
characters come late, and as many too many are sampled before Continue, which hangs up at the first newline, sees it.
So the engine is told to leave stop strings in (`include_stop_str_in_output`; it then holds nothing back and still
stops at once), and they are taken out here, holding back only what may be the beginning of one.
"""

from __future__ import annotations

from functools import lru_cache


class StopTrimmer:
    """One choice's text as the client may see it."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._beginnings = _beginnings(stop)
        self._longest = max(map(len, stop), default=0)
        self._held = ""

    def feed(self, text: str) -> str:
        """What of all text until now can be shown and was not yet."""
        text = self._held + text
        keep = self._possible_beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self, text: str, stopped_by: str | None) -> str:
        """The last text, without the stop string (or end token) at its end."""
        text, self._held = self._held + text, ""
        return text.removesuffix(stopped_by) if stopped_by else text

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string begins with."""
        beginnings = self._beginnings
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if text[-length:] in beginnings:
                return length
        return 0


@lru_cache(maxsize=256)
def _beginnings(stop: tuple[str, ...]) -> frozenset[str]:
    """Every proper beginning of every stop string. A client sends the same list each time."""
    return frozenset(text[:length] for text in stop for length in range(1, len(text)))
