"""From experience and siblings to the learner's mini-batches. Pure.

`triage` says what cannot be trained on, `scored_group` attaches known rewards, `plan_minibatch` turns scored groups
into `TrainGroup`s with advantages. What was left out is in the returned figures: nothing disappears uncounted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.trainer import advantages, scoring, tracker
from services.trainer.learner_api import TrainGroup, TrainSample
from services.trainer.tracker import Value
from shared.contracts.experience import Experience, Sample

STALE = "stale"
INVALID = "invalid"
NO_SIGNAL = "no_signal"
NON_FINITE = "non_finite"
TRAINED = "trained"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the learner can take."""

    max_staleness: int
    """Versions."""
    max_row_tokens: int
    """Prompt and one completion."""
    vocabulary: int | None
    """Token ids below this; None: unknown."""


def triage(experience: Experience, base_version: int, limits: Limits) -> str | None:
    """`stale` or `invalid`, or None for what can be trained on."""
    if not experience.sampling.full_support or not fits(experience.prompt_token_ids, experience.shown, limits):
        return INVALID
    return STALE if base_version - experience.shown.policy_version > limits.max_staleness else None


def fits(prompt_P: Sequence[int], sample: Sample, limits: Limits) -> bool:
    """Whether prompt and sample are whole, finite, in the vocabulary and short enough for one row."""
    size = len(sample.token_ids)
    if not prompt_P or len(sample.logprobs) != size or sample.credited_tokens > size:
        return False
    if not all(map(math.isfinite, sample.logprobs)) or len(prompt_P) + size > limits.max_row_tokens:
        return False
    largest = limits.vocabulary if limits.vocabulary is not None else math.inf
    return min(*prompt_P, *sample.token_ids, 0) >= 0 and max(*prompt_P, *sample.token_ids, 0) < largest


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A completion and what is known of its reward."""

    sample: Sample
    temperature: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """One prompt; the shown completion is the first."""

    experience: Experience
    samples: tuple[ScoredSample, ...]

    @property
    def known(self) -> list[tuple[ScoredSample, float]]:
        """Samples whose reward is known, with it."""
        return [(scored, scored.reward) for scored in self.samples if scored.reward is not None]

    @property
    def bucket(self) -> str:
        """Of the value tracker."""
        experience = self.experience
        return tracker.bucket_of(experience.project_id, experience.language, len(experience.prompt_token_ids))

    def expected(self, values: Mapping[str, Value]) -> float:
        """What the tracker expects here."""
        return tracker.predict(values.get(self.bucket), self.experience.reward_spec.silence)


def scored_group(
    experience: Experience, drawn: Sequence[Sample], limits: Limits, *, drawn_temperature: float | None = None
) -> ScoredGroup:
    """The shown completion with its own reward, its natural siblings and the drawn ones with what is known of theirs.

    `drawn_temperature`: where it is not the shown one's. Siblings that do not fit are left out.
    """
    own = experience.sampling.temperature
    others = [(sample, own) for sample in experience.siblings]
    others += [(sample, drawn_temperature or own) for sample in drawn]
    siblings = [
        ScoredSample(sample, temperature, scoring.sibling_reward(experience, sample.text))
        for sample, temperature in others
        if fits(experience.prompt_token_ids, sample, limits)
    ]
    return ScoredGroup(experience, (ScoredSample(experience.shown, own, experience.reward), *siblings))


@dataclass(frozen=True, slots=True)
class Plan:
    """One mini-batch and the figures of its making."""

    groups: list[TrainGroup]
    trained: list[str]
    """Experience ids behind `groups`."""
    no_signal: list[str]
    """Experience ids of groups in which nothing has both an advantage and a credited token."""
    rewards: list[float]
    """All known rewards."""
    zero_advantages: int
    """How many of them got none."""
    lone: int
    """Groups with fewer than two known rewards."""
    equal: int
    """Groups with two or more, all the same."""


def plan_minibatch(groups: Sequence[ScoredGroup], estimator: advantages.Estimator, values: Mapping[str, Value]) -> Plan:
    """Advantages for every known reward. `values`: the tracker before this mini-batch."""
    known = [group.known for group in groups]
    rewards = [reward for members in known for _, reward in members]
    batch = [
        advantages.GroupRewards(tuple(reward for _, reward in members), group.expected(values))
        for group, members in zip(groups, known, strict=True)
    ]
    given = estimator(batch)
    made = {
        group.experience.experience_id: _train_groups(group, [scored for scored, _ in members], advantages_K)
        for group, members, advantages_K in zip(groups, known, given, strict=True)
    }
    return Plan(
        groups=[train_group for train_groups in made.values() for train_group in train_groups],
        trained=[experience_id for experience_id, train_groups in made.items() if train_groups],
        no_signal=[experience_id for experience_id, train_groups in made.items() if not train_groups],
        rewards=rewards,
        zero_advantages=sum(advantages.is_zero(value) for advantages_K in given for value in advantages_K),
        lone=sum(len(one.rewards_G) < 2 for one in batch),
        equal=sum(len(one.rewards_G) > 1 and not one.has_baseline for one in batch),
    )


def _train_groups(group: ScoredGroup, known: Sequence[ScoredSample], advantages_K: Sequence[float]) -> list[TrainGroup]:
    """One `TrainGroup` per temperature (the learner takes one for a group); none where nothing is left to train."""
    by_temperature: dict[float, list[TrainSample]] = {}
    for scored, advantage in zip(known, advantages_K, strict=True):
        if not advantages.is_zero(advantage) and scored.sample.credited_tokens:
            by_temperature.setdefault(scored.temperature, []).append(_train_sample(scored.sample, advantage))
    experience = group.experience
    return [
        TrainGroup(
            group_id=experience.experience_id,
            prompt_token_ids=experience.prompt_token_ids,
            temperature=temperature,
            samples=samples,
        )
        for temperature, samples in by_temperature.items()
    ]


def _train_sample(sample: Sample, advantage: float) -> TrainSample:
    """Nothing behind the credited tokens can change the loss: it stays here."""
    end = sample.credited_tokens
    return TrainSample(
        token_ids=sample.token_ids[:end],
        behaviour_logprobs=sample.logprobs[:end],
        credited_tokens=end,
        advantage=advantage,
    )
