"""Which prompts a round takes, and what it trains on. Pure.

In: drawn groups with their scores. Out: the learner's mini-batches, with advantages by the estimators of online.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from services.trainer import tracker
from services.trainer.advantages import ESTIMATORS, GroupRewards, is_zero
from services.trainer.learner_api import SampledCompletion, SampledGroup, TrainGroup, TrainSample
from services.trainer.tracker import Value
from services.trainer.warmstart.config import Training
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.samples import FimSample


def picked(number: int, count: int, available: int, seed: int) -> list[int]:
    """Indices of the samples of round `number` (from 0): one shuffled pass after another, nothing left out."""
    places = range(number * count, (number + 1) * count)
    orders: dict[int, list[int]] = {}
    for epoch in {place // available for place in places}:
        orders[epoch] = list(range(available))
        random.Random(f"{seed} {epoch}").shuffle(orders[epoch])
    return [orders[place // available][place % available] for place in places]


def candidate(sample: FimSample, completion: SampledCompletion) -> Candidate:
    """For the rewards."""
    return Candidate(sample.prefix, sample.suffix, sample.reference, completion.text, sample.language, sample.path)


@dataclass(frozen=True, slots=True)
class Scored:
    """One prompt's completions, and what they are worth."""

    sample: FimSample
    group: SampledGroup
    rewards_G: tuple[float | None, ...]
    """None: unknown, masked out."""

    @property
    def known(self) -> list[tuple[SampledCompletion, float]]:
        """Completions whose reward is known."""
        pairs = zip(self.group.samples, self.rewards_G, strict=True)
        return [(completion, reward) for completion, reward in pairs if reward is not None]

    @property
    def bucket(self) -> str:
        """Of the value tracker."""
        return tracker.bucket_of("warmstart", self.sample.language, len(self.group.prompt_token_ids))


@dataclass(frozen=True, slots=True)
class Plan:
    """A round's mini-batches, those with nothing to learn left out, and the figures of its making."""

    minibatches: list[list[TrainGroup]]
    rewards: list[float]
    zero_advantages: int
    no_baseline: int
    """Groups with fewer than two known rewards, or all of them equal: measured against the tracker."""

    def figures(self) -> dict[str, float]:
        """For the log."""
        known = max(1, len(self.rewards))
        return {
            "reward/mean": fmean(self.rewards) if self.rewards else 0.0,
            "advantage/zero_share": self.zero_advantages / known,
            "group/no_baseline": float(self.no_baseline),
        }


def plan(scored: Sequence[Scored], training: Training, values: Mapping[str, Value], prior: float) -> Plan:
    """`training.minibatches` of about equal size. `values`, `prior`: the tracker before this round."""
    size = -(-len(scored) // training.minibatches)
    parts = [_part(scored[at : at + size], training, values, prior) for at in range(0, len(scored), size)]
    return Plan(
        minibatches=[groups for part in parts for groups in part.minibatches if groups],
        rewards=[reward for part in parts for reward in part.rewards],
        zero_advantages=sum(part.zero_advantages for part in parts),
        no_baseline=sum(part.no_baseline for part in parts),
    )


def _part(scored: Sequence[Scored], training: Training, values: Mapping[str, Value], prior: float) -> Plan:
    """One mini-batch."""
    batch = [
        GroupRewards(tuple(reward for _, reward in one.known), tracker.predict(values.get(one.bucket), prior))
        for one in scored
    ]
    advantages = ESTIMATORS[training.advantage](batch)
    groups = [_group(one, given, training.temperature) for one, given in zip(scored, advantages, strict=True)]
    return Plan(
        minibatches=[[group for group in groups if group is not None]],
        rewards=[reward for group in batch for reward in group.rewards_G],
        zero_advantages=sum(is_zero(value) for given in advantages for value in given),
        no_baseline=sum(not group.has_baseline for group in batch),
    )


def _group(scored: Scored, advantages: Sequence[float], temperature: float) -> TrainGroup | None:
    """All sampled tokens are credited, the one that ended the completion too: the reward is of where it ends as well.

    None where no completion has an advantage.
    """
    samples = [
        _sample(completion, advantage)
        for (completion, _), advantage in zip(scored.known, advantages, strict=True)
        if completion.token_ids and not is_zero(advantage)
    ]
    if not samples:
        return None
    return TrainGroup(
        group_id=scored.sample.sample_id,
        prompt_token_ids=scored.group.prompt_token_ids,
        temperature=temperature,
        samples=samples,
    )


def _sample(completion: SampledCompletion, advantage: float) -> TrainSample:
    return TrainSample(
        token_ids=completion.token_ids,
        behaviour_logprobs=completion.logprobs,
        credited_tokens=len(completion.token_ids),
        advantage=advantage,
    )
