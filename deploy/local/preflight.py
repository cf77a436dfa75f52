"""What can be told before anything is started: each failure is one sentence that names the setting to change."""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.config import StackConfig
from shared.kit.errors import SettingsError

_REPOSITORY_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")


class AlreadyRunning(SettingsError):
    """Another `up` holds the data folder."""


def check(config: StackConfig) -> None:
    """Raise `SettingsError` where the stack cannot start."""
    check_ports(config)
    check_model(config.model_path)


def check_ports(config: StackConfig) -> None:
    """Each port must be one of its own, and free."""
    used: dict[int, str] = {}
    for name in config.ports_by_field():
        port = getattr(config, name)
        if port in used:
            raise SettingsError(f"TABWISE_{name.upper()} and {used[port]} are both {port}: change one of them")
        used[port] = f"TABWISE_{name.upper()}"
        host = config.bind_host if name in ("gateway_port", "ingest_port") else "127.0.0.1"
        _check_port(host, port, used[port])


def _check_port(host: str, port: int, setting: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} on {host} cannot be used ({os.strerror(error.errno or 0)}): "
                f"stop the program that holds it, or set {setting} to another port"
            ) from error


def check_model(model_path: str) -> None:
    """A folder with a model in it, or the name of a repository (whose first part is no folder here)."""
    folder = Path(model_path)
    if folder.is_dir():
        if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
            raise SettingsError(
                f"{model_path} holds no model (config.json and *.safetensors): "
                "set TABWISE_MODEL_PATH to a folder in Hugging Face format"
            )
    elif not _REPOSITORY_NAME.match(model_path) or folder.parent.is_dir():
        raise SettingsError(
            f"there is no model folder {model_path}: set TABWISE_MODEL_PATH to a folder in Hugging Face format, "
            "or run `make base-model`"
        )


def prepare_folders(config: StackConfig) -> None:
    """Create the data folder's parts."""
    try:
        for folder in (config.logs, *config.folders().values()):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{config.root} cannot be written ({error.strerror}): set TABWISE_DATA_DIR") from error


@contextmanager
def sole_owner(config: StackConfig) -> Iterator[None]:
    """Hold the data folder for the length of a `with` block; the lock goes with the process, however it ends."""
    with (config.root / "up.pid").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(
                f"this stack is already running in {config.root} (process {owner(config)}): stop it with "
                "`python -m deploy.local down`, or set TABWISE_DATA_DIR (and the ports) for a second one"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def owner(config: StackConfig) -> int | None:
    """Process id of the `up` that holds the data folder; None: nobody does."""
    path = config.root / "up.pid"
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return int(file.read() or 0) or None
    return None
