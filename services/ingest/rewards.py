"""The reward of a display: named terms, derived from its evidence. Pure; the table is in docs/feedback.md.

With accepted `+0.75` and rejected `-0.25` showing pays only above a 25 % chance of acceptance; silence is worth `0`.
Siblings are scored by the trainer with the part of the weights that travels with each experience (`RewardSpec`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Self

import orjson
from pydantic import ConfigDict, Field, ValidationError, model_validator

from services.ingest.evidence import Evidence
from shared.contracts.experience import RewardSpec

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
RETENTION_FIELDS = {30: "retention_30s", 120: "retention_2m", 600: "retention_10m"}
"""Seconds after the accept → the weight of what is left then."""
DIGEST_CHARS = 16


class RewardWeights(RewardSpec):
    """What each piece of evidence is worth. Each field is a setting too: `TABWISE_REWARD_<FIELD>`.

    Terms that are known only after the display was handed to the trainer (retention, reversed), or that nobody has
    measured yet (typed_out, length), weigh nothing unless somebody says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    accepted: float = Field(default=0.75, allow_inf_nan=False)
    rejected: float = Field(default=-0.25, allow_inf_nan=False)
    silence: float = Field(default=0.0, allow_inf_nan=False)
    partial: Share = 1.0
    """Where a partial accept lies between rejected (0) and accepted (1), for its own tokens."""
    dismissed: Amount = 0.25
    """What a reject costs further if the person dismissed it, not a timer."""
    typed_out: Share = 0.0
    """How far towards accepted it lifts a display that the text was then typed by hand."""
    retention_30s: Amount = 0.0
    """What an accept loses if nothing of it is left 30 s later, and by the share that is gone otherwise."""
    retention_2m: Amount = 0.0
    retention_10m: Amount = 0.0
    reversed: Amount = 0.0
    """What an accept loses that was soon removed."""
    edited: Amount = 0.5
    """Times the similarity of the final text to the suggestion, less one for an accept."""
    rating: Amount = 0.25
    """Times the developer's rating, -1 to 1."""
    length: Amount = 0.0
    """What the longest text adds to an accept and takes from a reject: less than lies between the two."""
    length_half_chars: float = Field(default=40.0, gt=0, allow_inf_nan=False)
    """A text of so many characters has half of that."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.accepted <= self.rejected:
            raise ValueError("accepted: must be greater than rejected")
        if self.length >= self.accepted - self.rejected:
            raise ValueError("length: must be less than accepted minus rejected, so that no length beats a verdict")
        return self

    @property
    def spec(self) -> RewardSpec:
        """The part that the trainer scores siblings with."""
        return RewardSpec(**self.model_dump(include=set(RewardSpec.model_fields)))

    @property
    def digest(self) -> str:
        """The same for the same numbers, in whatever order and by whatever name they came."""
        numbers = {name: float(value) for name, value in self.model_dump().items()}
        return hashlib.sha256(orjson.dumps(numbers, option=orjson.OPT_SORT_KEYS)).hexdigest()[:DIGEST_CHARS]

    @property
    def bound(self) -> float:
        """No reward is further from zero."""
        verdict = max(abs(self.accepted), abs(self.rejected) + self.dismissed, abs(self.silence))
        kept = self.retention_30s + self.retention_2m + self.retention_10m
        return verdict + kept + self.reversed + self.edited + self.rating + self.length


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward and the terms that it is the sum of."""

    terms: Mapping[str, float]

    @property
    def value(self) -> float:
        """The sum."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class NamedReward:
    """Weights as they are written down with the rewards that they gave."""

    name: str
    weights: RewardWeights
    digest: str

    @classmethod
    def of(cls, name: str, weights: RewardWeights) -> NamedReward:
        """With the digest of its numbers."""
        return cls(name, weights, weights.digest)


@dataclass(frozen=True, slots=True)
class ProjectRewards:
    """The reward of every project: the general one, and those of the projects that have their own."""

    general: NamedReward
    own: Mapping[str, NamedReward] = field(default_factory=dict)

    def of(self, project_id: str) -> NamedReward:
        """What a display of this project is rewarded by."""
        return self.own.get(project_id, self.general)


def reward_of(evidence: Evidence, weights: RewardWeights) -> Reward | None:
    """The reward of one display; None where nothing is decided and nothing else is known either."""
    if evidence.shown_chars == 0:
        return Reward({"silence": weights.silence})
    terms = _verdict(evidence, weights)
    base = sum(terms.values())
    if evidence.verdict == "accepted":
        terms |= _kept(evidence, weights)
    elif evidence.typed_out and weights.typed_out:
        terms["typed_out"] = weights.typed_out * (weights.accepted - base)
    terms |= _said(evidence, weights) | _length(evidence, weights)
    return Reward(terms) if terms else None


def length_term(chars: int, weights: RewardWeights) -> float:
    """`length * chars / (chars + length_half_chars)`: grows with every character and never reaches `length`."""
    return weights.length * chars / (chars + weights.length_half_chars)


def first_problem(error: ValidationError) -> str:
    """What is wrong with weights: `field: reason`, without the value's surroundings."""
    first = error.errors(include_url=False, include_input=False)[0]
    reason = first["msg"].removeprefix("Value error, ").replace("Extra inputs are not permitted", "is no reward term")
    return ": ".join([*map(str, first["loc"]), reason])


def _verdict(evidence: Evidence, weights: RewardWeights) -> dict[str, float]:
    """What the client's word alone is worth; empty where it only said that it was shown."""
    if evidence.verdict == "accepted":
        if evidence.part is None:
            return {"accepted": weights.accepted}
        return {"partial": weights.rejected + weights.partial * (weights.accepted - weights.rejected)}
    if evidence.verdict == "rejected":
        return {"rejected": weights.rejected} | ({"dismissed": -weights.dismissed} if evidence.explicit else {})
    return {}


def _kept(evidence: Evidence, weights: RewardWeights) -> dict[str, float]:
    """What an accept loses by what became of the text."""
    lost = {
        name: -getattr(weights, name) * (1.0 - evidence.retention[after_s])
        for after_s, name in RETENTION_FIELDS.items()
        if after_s in evidence.retention
    }
    if evidence.reversed_:
        lost["reversed"] = -weights.reversed
    return {name: value for name, value in lost.items() if value}


def _said(evidence: Evidence, weights: RewardWeights) -> dict[str, float]:
    """What the developer said by a rating or by the final text."""
    said: dict[str, float] = {}
    if evidence.edited is not None and weights.edited:
        whole = 1.0 if evidence.verdict == "accepted" else 0.0
        said["edited"] = weights.edited * (evidence.edited - whole)
    if evidence.rating is not None and weights.rating:
        said["rating"] = weights.rating * evidence.rating
    return said


def _length(evidence: Evidence, weights: RewardWeights) -> dict[str, float]:
    """More text taken is worth more, more text refused costs more."""
    if not weights.length or not evidence.shown_chars or evidence.verdict == "shown":
        return {}
    sign = 1.0 if evidence.verdict == "accepted" else -1.0
    return {"length": sign * length_term(evidence.shown_chars, weights)}
