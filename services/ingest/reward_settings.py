"""The reward as settings: `TABWISE_REWARD_<TERM>`, and per project `TABWISE_PROJECT_REWARDS` in JSON.

One field per field of `RewardWeights`, with its default and meaning; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import orjson
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import NoDecode

from services.ingest.rewards import NamedReward, ProjectRewards, RewardWeights, first_problem
from shared.contracts.experience import RewardSpec
from shared.kit.settings import ServiceSettings

Overrides = dict[str, dict[str, Any]]
PROJECT_REWARDS = "TABWISE_PROJECT_REWARDS"


class RewardSettings(ServiceSettings):
    """What each piece of evidence is worth; `services.ingest.rewards.RewardWeights` says what each one means."""

    reward_name: str = Field(default="default", min_length=1, max_length=100)
    """Written down with every reward, beside a digest of the numbers: change it when you change them."""
    reward_accepted: float = 0.75
    reward_partial: float = 1.0
    reward_rejected: float = -0.25
    reward_dismissed: float = 0.25
    reward_silence: float = 0.0
    reward_typed_out: float = 0.0
    reward_retention_30s: float = 0.0
    reward_retention_2m: float = 0.0
    reward_retention_10m: float = 0.0
    reward_reversed: float = 0.0
    reward_edited: float = 0.5
    reward_rating: float = 0.25
    reward_length: float = 0.0
    reward_length_half_chars: float = 40.0
    reward_sibling_weight: float = 0.9
    reward_similarity_power: float = 4.0
    project_rewards: Annotated[Overrides, NoDecode] = Field(default_factory=dict)
    """What differs in single projects: `{"team-a": {"accepted": 1.0}}`."""

    @field_validator("project_rewards", mode="before")
    @classmethod
    def _overrides(cls, value: Any) -> Any:
        value = _parsed(value) if isinstance(value, str) else value
        if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
            raise ValueError('must be JSON like {"team-a": {"accepted": 1.0}}')
        return value

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            RewardWeights(**self._numbers())
        except ValidationError as error:
            raise ValueError(f"TABWISE_REWARD_{_setting(first_problem(error))}") from None
        for project_id, changes in self.project_rewards.items():
            try:
                RewardWeights(**(self._numbers() | changes))
            except ValidationError as error:
                raise ValueError(f"{PROJECT_REWARDS}: {project_id}: {first_problem(error)}") from None
        return self

    @property
    def rewards(self) -> ProjectRewards:
        """The reward of every project; made anew each time, so keep it."""
        return ProjectRewards(
            NamedReward.of(self.reward_name, RewardWeights(**self._numbers())),
            {
                project_id: NamedReward.of(
                    f"{self.reward_name}/{project_id}", RewardWeights(**self._numbers() | changes)
                )
                for project_id, changes in self.project_rewards.items()
            },
        )

    @property
    def reward_spec(self) -> RewardSpec:
        """The part of the general reward that travels with each experience."""
        return self.rewards.general.weights.spec

    def _numbers(self) -> dict[str, Any]:
        return {name: getattr(self, f"reward_{name}") for name in RewardWeights.model_fields}


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None


def _setting(problem: str) -> str:
    """`length: must …` as `LENGTH: must …`."""
    name, _, reason = problem.partition(": ")
    return f"{name.upper()}: {reason}"
