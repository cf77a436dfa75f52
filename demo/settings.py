"""What a demo run is told, and what it tells the services.

Simulated time runs `speed` times faster than real time, so the services' own waits for people (the late Tab, the
settled text) are divided by it too. Everything else about the services is their default unless listed here.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from deploy.local.config import StackConfig


class DemoConfig(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True)

    seed: int = 1
    developers: int = Field(default=4, ge=1)
    speed: float = Field(default=10.0, gt=0)
    """Simulated seconds per real second."""
    work_s: float = Field(default=300.0, gt=0)
    """How long the developers work, in real seconds."""
    events: int | None = Field(default=None, ge=1)
    """They also stop after so many feedback events."""
    settle_s: float = Field(default=120.0, gt=0)
    """Longest wait until all of their feedback is trained and served."""
    evaluation_moments: int = Field(default=400, ge=10)
    folder: Path
    """Made anew for each run."""
    services: dict[str, str] = Field(default_factory=dict)
    """Settings of the services, over the demo's own."""

    def stack(self) -> StackConfig:
        """The stack of this run: free ports, an empty data folder."""
        return StackConfig.isolated(self.folder, extra_environment=self.environment())

    def environment(self) -> dict[str, str]:
        """The demo's settings of the services; those of the caller's environment go first."""
        late_tab_s = 20 / self.speed
        ours = {
            "TABWISE_LATE_ACCEPT_WINDOW_S": f"{late_tab_s:g}",
            "TABWISE_SETTLE_GRACE_S": f"{30 / self.speed:g}",
            "TABWISE_JOIN_GRACE_S": "20",
            "TABWISE_MAX_WAIT_S": "8",
            # On a machine that is too slow for this team, the oldest feedback is put aside instead of piling up.
            "TABWISE_MAX_STALENESS": "4",
            "TABWISE_LEARNER_SEED": str(self.seed),
        }
        return {name: os.environ.get(name, value) for name, value in ours.items()} | self.services
