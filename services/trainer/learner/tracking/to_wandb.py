"""Weights & Biases. Where to, and with which key, its own variables say: WANDB_API_KEY, WANDB_BASE_URL, WANDB_MODE.

Without a key it stays offline: files below `run_dir`, for `wandb sync`. Of what it would collect by itself (code, git,
console, command line, machine, packages) nothing is.
"""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import wandb

from services.trainer.learner.tracking.tracker import PROJECT, Run


class WandB:
    """A `Tracker`."""

    def __init__(self, run: Any) -> None:
        self._run = run
        for axis, names in (("train/step", "train/*"), ("round/version", "round/*")):
            run.define_metric(axis, hidden=True)
            run.define_metric(names, step_metric=axis)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        axis = "train/step" if any(name.startswith("train/") for name in figures) else "round/version"
        self._run.log({**figures, axis: step})

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()


def open_wandb(run: Run) -> WandB:
    """Go on with the run of that name, or begin it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    for variable in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        os.environ.setdefault(variable, str(run.folder / "wandb-own"))
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.name,
        id=re.sub(r"[^\w-]", "-", run.name)[:64],
        resume="allow",
        mode=_mode(),
        dir=str(run.folder),
        config=dict(run.config),
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )
    return WandB(opened)


def _mode() -> Any:
    """None: what its own variables say."""
    return None if os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY") or _in_netrc() else "offline"


def _in_netrc() -> bool:
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
