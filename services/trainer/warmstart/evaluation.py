"""Held-out samples, completed by a policy and measured. In: a checkpoint. Out: figures by name.

`exact` and `similarity` are always there (of the stripped texts, whatever the rewards are), with the standard error of
`exact`; then `reward/…`, the parts of the configured mix; then `exact/<kind>` for each kind of hole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from services.trainer.learner_api import CheckpointRef, SampledGroup
from services.trainer.scoring import similarity
from services.trainer.warmstart.drawing import Sampling, WarmLearner, draw
from services.trainer.warmstart.planning import candidate
from services.trainer.warmstart.rewards.mix import Scores
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.samples import FimSample
from services.trainer.warmstart.tokens import PromptTokenizer

Score = Callable[[Sequence[Candidate]], Scores]
_AT_ONCE = 64
"""Samples of one request."""


def evaluate(
    learner: WarmLearner,
    base: CheckpointRef,
    samples: Sequence[FimSample],
    sampling: Sampling,
    tokenizer: PromptTokenizer,
    score: Score,
) -> dict[str, float]:
    """One completion for each sample."""
    groups: list[SampledGroup] = []
    for start in range(0, len(samples), _AT_ONCE):
        groups += draw(learner, base, samples[start : start + _AT_ONCE], sampling, tokenizer)
    candidates = [candidate(sample, group.samples[0]) for sample, group in zip(samples, groups, strict=True)]
    return figures(samples, candidates, score(candidates))


def figures(samples: Sequence[FimSample], candidates: Sequence[Candidate], scores: Scores) -> dict[str, float]:
    """Means over the samples. Pure."""
    exact = [float(c.completion.strip() == c.reference.strip()) for c in candidates]
    alike = [similarity(c.completion, c.reference) for c in candidates]
    mean = fmean(exact)
    kinds: dict[str, list[float]] = {}
    for sample, value in zip(samples, exact, strict=True):
        kinds.setdefault(sample.kind, []).append(value)
    return {
        "samples": float(len(samples)),
        "exact": mean,
        "exact_error": math.sqrt(mean * (1 - mean) / len(exact)),
        "similarity": fmean(alike),
        "empty": fmean(float(not c.completion.strip()) for c in candidates),
        **scores.figures(),
        **{f"exact/{kind}": fmean(values) for kind, values in sorted(kinds.items())},
    }
