"""What can be told before the worker starts: each failure is one sentence that names the setting to change."""

from __future__ import annotations

import re
from pathlib import Path

from services.trainer.learner_nodes import meeting_port
from services.trainer.repository import check_schema
from services.trainer.settings import TrainerSettings
from shared.kit.errors import SettingsError
from shared.worker import checks

_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")


def check(settings: TrainerSettings) -> None:
    """Raise `SettingsError` where the trainer cannot work."""
    checks.check_engines(settings.engines)
    check_model(settings.model_path)
    if settings.reference_path is not None:
        check_model(settings.reference_path, "TABWISE_REFERENCE_PATH")
    checks.check_folder("TABWISE_CHECKPOINT_ROOT", settings.checkpoint_root)
    checks.check_metrics_port("TABWISE_TRAINER_METRICS_PORT", settings.metrics_host, settings.trainer_metrics_port)
    check_nodes(settings)
    check_database(settings.database_url)
    checks.check_redis(settings.redis_url)
    checks.check_broker(settings.broker_url)


def check_nodes(settings: TrainerSettings) -> None:
    """The hostfile, where there is one."""
    nodes = settings.learner_nodes()
    if nodes is not None and len(nodes.hosts) > 1:
        meeting_port(nodes)


def check_database(url: str) -> None:
    """It must answer and have the trainer's tables."""
    checks.check_database(url, check_schema)


def check_model(model_path: str, setting: str = "TABWISE_MODEL_PATH") -> None:
    """A folder with a model in it, or the name of a repository (whose first part is no folder here)."""
    folder = Path(model_path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise SettingsError(f"{setting}: {model_path} has no config.json, so it is no model folder")
    elif not _REPOSITORY.match(model_path) or folder.parent.is_dir():
        raise SettingsError(f"{setting}: there is no model folder at {model_path}")
