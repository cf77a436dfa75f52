"""A reward as a YAML file (`configs/rewards/`): a name, the weights that are not the default, and those of projects.

In: a path. Out: `ProjectRewards`. A wrong file is one sentence that names the file and the field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.ingest.rewards import NamedReward, ProjectRewards, RewardWeights, first_problem
from shared.kit.errors import SettingsError


class RewardFile(BaseModel):
    """What a file says besides its weights."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(min_length=1, max_length=100)
    projects: dict[str, dict[str, Any]] = {}
    """Project → the weights that are different there."""


def read_reward(path: Path) -> ProjectRewards:
    """Raises `SettingsError`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise SettingsError(f"{path}: must have a name and weights, like configs/rewards/default.yaml")
        return _rewards(RewardFile.model_validate(content))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise SettingsError(f"{path}: is not YAML") from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {first_problem(error)}") from None


def _rewards(file: RewardFile) -> ProjectRewards:
    weights = file.model_extra or {}
    own = {
        project_id: NamedReward.of(file.name, RewardWeights(**weights | changes))
        for project_id, changes in file.projects.items()
    }
    return ProjectRewards(NamedReward.of(file.name, RewardWeights(**weights)), own)
