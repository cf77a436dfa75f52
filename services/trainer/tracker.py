"""The value tracker: a decayed mean reward per project × language × prompt length, the baseline of lone completions.

Pure; `repository.py` keeps it in `value_trackers`. It follows the rewards of *shown* completions only: each is one draw
from the policy that users met, while known siblings are the ones that happened to be close to a known text. The bucket
is a property of the prompt, never of the completion: a baseline that depends on the action would bias the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PRIOR_WEIGHT = 1.0
"""How many experiences the prior counts for."""


@dataclass(frozen=True, slots=True)
class Value:
    """Decayed mean of the rewards and how many they amount to."""

    mean: float
    weight: float

    def with_reward(self, reward: float, decay: float) -> Value:
        """After one more reward."""
        weight = self.weight * decay + 1.0
        return Value(self.mean + (reward - self.mean) / weight, weight)


def bucket_of(project_id: str, language: str, prompt_tokens: int) -> str:
    """`project/language/length`; length is the next power of two, 32 at least."""
    length = max(32, 1 << max(prompt_tokens - 1, 0).bit_length())
    return f"{project_id}/{language}/{length}"


def predict(value: Value | None, prior: float) -> float:
    """The expected reward; `prior` (silence's reward: what showing nothing would have given) while it is young.

    Not the mini-batch's mean: that depends on the very rewards it is compared with, and a first mini-batch of equal
    rewards would teach nothing.
    """
    if value is None:
        return prior
    return (value.mean * value.weight + prior * PRIOR_WEIGHT) / (value.weight + PRIOR_WEIGHT)


def updated(values: Mapping[str, Value], observations: Iterable[tuple[str, float]], decay: float) -> dict[str, Value]:
    """The buckets that (bucket, reward) observations changed, in their order."""
    changed: dict[str, Value] = {}
    for bucket, reward in observations:
        before = changed.get(bucket) or values.get(bucket) or Value(0.0, 0.0)
        changed[bucket] = before.with_reward(reward, decay)
    return changed
