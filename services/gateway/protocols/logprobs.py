"""OpenAI's `logprobs` of completions, in step with the text that the client sees. Pure.

Tokens are said when the text that they begin in is said: those of a stop string, which is cut from the text, never are.
Offsets count the characters of the choice's text before a token.
"""

from __future__ import annotations

from typing import Any

from services.gateway.capture import Visible

_Token = tuple[str, float | None, dict[str, float] | None, int]


class ChoiceLogprobs:
    """One choice's tokens on their way."""

    def __init__(self) -> None:
        self._raw = 0
        self._shown = 0
        self._waiting: list[_Token] = []

    def take(self, visible: Visible) -> dict[str, Any]:
        """The `logprobs` that belong to this part of the text."""
        source = visible.source
        shift = self._raw - (source.offsets[0] if source.offsets else 0)
        tokens = zip(source.pieces, source.logprobs, source.top_logprobs, source.offsets, strict=False)
        self._waiting += [(piece, value, top, offset + shift) for piece, value, top, offset in tokens]
        self._raw += len(source.text)
        self._shown += len(visible.text)
        return _entry(self._ready(visible))

    def _ready(self, visible: Visible) -> list[_Token]:
        """At the end the token that ended it as well, unless it is (part of) a stop string."""
        last = visible.finish_reason is not None and not isinstance(visible.source.stop_reason, str)
        ready = [token for token in self._waiting if last or token[3] < self._shown]
        self._waiting = self._waiting[len(ready) :]
        return ready


def _entry(tokens: list[_Token]) -> dict[str, Any]:
    return {
        "tokens": [piece for piece, _, _, _ in tokens],
        "token_logprobs": [value for _, value, _, _ in tokens],
        "top_logprobs": [top for _, _, top, _ in tokens],
        "text_offset": [offset for _, _, _, offset in tokens],
    }
