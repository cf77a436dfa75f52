"""The `learner:` section: the trainer's own settings of the learner, by the same names, bounds and defaults.

`learner: {learning_rate: 5e-5, kl_coef: 0.02}` is what TABWISE_LEARNING_RATE and TABWISE_KL_COEF are online. The list
is not kept twice: whatever `TrainerSettings` hands to its learner can be set here. The environment is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, create_model

from services.trainer.learner_api import LearnerConfig
from services.trainer.settings import TrainerSettings

_ELSEWHERE = {
    "model_path",
    "reference_path",
    "tensorboard_dir",
    "run_dir",
    "max_completion_tokens",
    "learner_seed",
    "run_name",
}
"""Told by `model`, `output`, `training` and `seed`."""


def _fields() -> dict[str, Any]:
    own = TrainerSettings.model_fields
    names = [name for name in own if name in LearnerConfig.model_fields or name.startswith("learner_")]
    return {name: (own[name].annotation, own[name]) for name in names if name not in _ELSEWHERE}


class _Base(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def settings(self, **told: Any) -> TrainerSettings:
        """As the trainer's settings, all others at their defaults; `told`: what other sections say."""
        return TrainerSettings.model_construct(**(self.model_dump() | told))


if TYPE_CHECKING:

    class LearnerSection(_Base):
        """What the trainer's settings say of the learner."""

else:
    LearnerSection = create_model("LearnerSection", __base__=_Base, **_fields())
