"""What is compared. All share the trainer's default settings but for what defines them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.ingest.rewards import RewardWeights
from services.trainer.learner_api import LearnerConfig
from services.trainer.settings import AdvantageName, TrainerSettings
from shared.kit.errors import SettingsError

SERVING_TEMPERATURE = 0.5
"""What the local stack and the compose file set for TABWISE_TEMPERATURE_OVERRIDE (docs/decisions/0006)."""
RLINF_TEMPERATURE = 0.1


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to learn. `learner`: fields of `LearnerConfig` that belong to it."""

    name: str
    about: str
    advantage: AdvantageName
    group_size: int
    temperature: float = SERVING_TEMPERATURE
    weights: RewardWeights = field(default_factory=RewardWeights)
    learner: Mapping[str, Any] = field(default_factory=dict)

    def trainer(self) -> TrainerSettings:
        """The trainer's defaults with what this algorithm changes; the environment is not looked at."""
        chosen: dict[str, Any] = {"advantage": self.advantage, "group_size": self.group_size, "tensorboard_dir": None}
        return TrainerSettings.model_construct(**chosen, **self.learner)

    def learner_config(self, model_path: str) -> LearnerConfig:
        """One thread, so that a seed gives the same run again."""
        return self.trainer().learner_config().model_copy(update={"model_path": model_path, "threads": 1})


_KNOWN = (
    Algorithm("ours", "siblings + GRPO, the default", "grpo", TrainerSettings.model_fields["group_size"].default),
    Algorithm("tracker", "singles against a value tracker", "tracker", 1),
    Algorithm("reinforce_pp", "singles, REINFORCE++", "reinforce_pp", 1),
    Algorithm(
        "raw",
        "singles, raw 0/1 reward + clip at temperature 0.1, as RLinf runs it",
        "raw",
        1,
        temperature=RLINF_TEMPERATURE,
        weights=RewardWeights(accepted=1.0, rejected=0.0),
        learner={"loss": "clip", "importance": "none", "kl_coef": 0.0, "max_logprob_gap": math.inf},
    ),
)
ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in _KNOWN}


def parse(spec: str) -> Algorithm:
    """`raw`, or `raw@2e-5`: at another learning rate than the default. Raises `SettingsError`."""
    name, _, rate = spec.partition("@")
    if name not in ALGORITHMS:
        raise SettingsError(f"--algorithms: {name!r} is not one of {', '.join(ALGORITHMS)}")
    algorithm = ALGORITHMS[name]
    if not rate:
        return algorithm
    try:
        value = float(rate)
    except ValueError:
        raise SettingsError(f"--algorithms: {rate!r} in {spec!r} is not a learning rate such as 2e-5") from None
    return replace(algorithm, name=f"{name}@{value:g}", learner={**algorithm.learner, "learning_rate": value})


def family(name: str) -> str:
    """The algorithm behind `raw@2e-05`."""
    return name.partition("@")[0]
