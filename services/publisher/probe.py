"""Do these logprobs come from these weights? Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def max_difference(expected: Sequence[float], found: Sequence[float | None]) -> float:
    """Largest absolute difference in nats; infinite where the lengths differ or a value is missing or not finite."""
    if len(expected) != len(found) or not expected:
        return math.inf
    return max(_difference(a, b) for a, b in zip(expected, found, strict=True))


def prompt_logprobs(answer: object, token_ids: Sequence[int]) -> list[float | None]:
    """The logprob of every token but the first, from vLLM's `prompt_logprobs` of the same tokens.

    vLLM's form: `[null, {"<token id>": {"logprob": …}}, …]`, one entry per token. Raises `ValueError` for another.
    """
    try:
        entries = answer["choices"][0]["prompt_logprobs"]  # type: ignore[index]
        pairs = zip(token_ids[1:], entries[1:], strict=True)
        return [_logprob(entry[str(token)]["logprob"]) for token, entry in pairs]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the engine's answer has no prompt logprobs ({type(error).__name__})") from error


def _logprob(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _difference(a: float, b: float | None) -> float:
    if b is None or not math.isfinite(a) or not math.isfinite(b):
        return math.inf
    return abs(a - b)
