"""What can be told before vLLM spends half a minute on starting; each failure is one sentence naming the setting."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from services.engine.settings import EngineSettings
from shared.kit.errors import SettingsError

_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")


def check(settings: EngineSettings) -> None:
    """Raise `SettingsError` where the engine cannot start."""
    check_model(settings.model_path)
    check_port(settings.engine_host, settings.engine_port)


def check_model(model_path: str) -> None:
    """A folder with a model in it, or the name of a repository (whose first part is no folder here)."""
    folder = Path(model_path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise SettingsError(f"TABWISE_MODEL_PATH: {model_path} has no config.json, so it is no model folder")
        if not any(folder.glob("*.safetensors")):
            raise SettingsError(f"TABWISE_MODEL_PATH: {model_path} has no *.safetensors file, so it has no weights")
        return
    if not _REPOSITORY.match(model_path) or folder.parent.is_dir():
        raise SettingsError(f"TABWISE_MODEL_PATH: there is no model folder at {model_path}")


def check_port(host: str, port: int) -> None:
    """The port must be free and the address ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"the engine cannot listen on {host}:{port} ({error.strerror}): "
                "change TABWISE_ENGINE_PORT or TABWISE_ENGINE_HOST, or stop what uses it"
            ) from error
