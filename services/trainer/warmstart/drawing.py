"""Completions of samples, from the learner's own policy. In: samples. Out: one group each, in order.

A sample of one line is asked for as an editor does that shows one: sampling stops at the line's end. The others end
where the model says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.trainer.learner_api import CheckpointRef, Sampled, SampledGroup, SampleRequest, TrainRequest
from services.trainer.learner_process import TrainedRound
from services.trainer.warmstart.samples import FimSample
from services.trainer.warmstart.tokens import PromptTokenizer

_LINE_END = "\n"


class WarmLearner(Protocol):
    """The learner process, as the warm start sees it."""

    def sample(self, request: SampleRequest, abandon: Callable[[], bool] = ...) -> Sampled:
        """Completions; raises as `train` does."""

    def train(self, request: TrainRequest, abandon: Callable[[], bool] = ...) -> TrainedRound:
        """See `learner_process.Learner.train`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw."""

    count: int
    """Completions of each prompt."""
    temperature: float
    max_tokens: int
    seed: int


def draw(
    learner: WarmLearner,
    base: CheckpointRef,
    samples: Sequence[FimSample],
    sampling: Sampling,
    tokenizer: PromptTokenizer,
) -> list[SampledGroup]:
    """Raises `LearnerDied` or `RoundRefused`."""
    groups: dict[int, SampledGroup] = {}
    for several_lines in (False, True):
        places = [at for at, sample in enumerate(samples) if sample.several_lines == several_lines]
        if places:
            prompts = [tokenizer.prompt_ids(samples[at].prompt) for at in places]
            request = SampleRequest(
                base=base,
                prompts=prompts,
                n=sampling.count,
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                stop=[] if several_lines else [_LINE_END],
                seed=seed_of(sampling.seed, several_lines),
            )
            groups |= zip(places, learner.sample(request).groups, strict=True)
    return [groups[at] for at in range(len(samples))]


def seed_of(*parts: object) -> int:
    """A seed of its own for everything that is drawn."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")
