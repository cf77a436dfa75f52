"""supervisord: its configuration, its process, and talking to it. It starts, restarts and stops the parts.

Every part inherits supervisord's environment, so that no secret is written into the configuration.
"""

from __future__ import annotations

import configparser
import ctypes
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import xmlrpc.client
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from supervisor.xmlrpc import SupervisorTransport

from deploy.local.config import REPOSITORY, StackConfig
from deploy.local.programs import Program
from shared.kit.errors import TemporaryError

_LONGEST_SOCKET_PATH = 100
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class PartState:
    """What supervisord says of one part."""

    name: str
    state: str
    """`STOPPED` `STARTING` `RUNNING` `BACKOFF` `STOPPING` `EXITED` `FATAL`"""
    pid: int
    """0 while it does not run."""
    since: int
    """Unix time of its last start or end."""
    exit_status: int
    description: str

    @property
    def ended(self) -> bool:
        """Whether it is not running although it was started: it died, and may be started again."""
        return self.state in ("BACKOFF", "EXITED", "FATAL")

    @classmethod
    def parse(cls, info: dict[str, Any]) -> Self:
        """From one entry of `getAllProcessInfo`."""
        since = info["start"] if info["statename"] in ("RUNNING", "STARTING") else info["stop"]
        return cls(info["name"], info["statename"], info["pid"], since, info["exitstatus"], info["description"])


class Supervisor:
    """The remote control; works from any process that knows the data folder."""

    def __init__(self, config: StackConfig) -> None:
        self.socket = socket_path(config)

    def states(self) -> list[PartState]:
        """All parts. Raises `TemporaryError` while supervisord does not answer."""
        return [PartState.parse(info) for info in self._call("getAllProcessInfo")]

    def start(self, name: str) -> None:
        """Start one part without waiting for it."""
        self._call("startProcess", name, False)

    def kill(self, name: str) -> None:
        """`kill -9` one part; it is started again."""
        self._call("signalProcess", name, "KILL")

    def shutdown(self) -> None:
        """Stop every part, then supervisord itself; returns at once."""
        self._call("shutdown")

    def answers(self) -> bool:
        """Whether supervisord is there."""
        try:
            return bool(self._call("getState"))
        except TemporaryError:
            return False

    def _call(self, method: str, *arguments: Any) -> Any:
        transport = SupervisorTransport(None, None, f"unix://{self.socket}")
        proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except (OSError, xmlrpc.client.Error) as error:
            raise TemporaryError(f"supervisord: {error}") from error
        finally:
            transport.close()


def socket_path(config: StackConfig) -> Path:
    """In the data folder; where that path is too long for a socket, in the system's folder for temporary files."""
    inside = config.root / "supervisor.sock"
    if len(str(inside)) <= _LONGEST_SOCKET_PATH:
        return inside
    return Path(tempfile.gettempdir()) / f"tabwise-{hashlib.sha256(str(inside).encode()).hexdigest()[:16]}.sock"


def write_configuration(config: StackConfig, programs: Iterable[Program]) -> Path:
    """`supervisord.conf` of this stack."""
    parser = configparser.RawConfigParser()
    parser.read_dict({**_own_sections(config), **{f"program:{part.name}": _section(config, part) for part in programs}})
    path = config.root / "supervisord.conf"
    with path.open("w", encoding="utf-8") as file:
        parser.write(file)
    return path


def launch(config: StackConfig, configuration: Path) -> subprocess.Popen[bytes]:
    """supervisord in a session of its own, so that Ctrl-C reaches us alone; it ends when the calling thread does."""
    command = [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "-c", str(configuration)]
    with (config.logs / "supervisord.out").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=config.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _end_with_parent() -> None:
    """Runs in the child before exec: if we are killed, supervisord gets SIGTERM and stops every part."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _own_sections(config: StackConfig) -> dict[str, dict[str, str]]:
    root = {"user": "root"} if os.geteuid() == 0 else {}
    return {
        "supervisord": {
            "logfile": _literal(config.logs / "supervisord.log"),
            "logfile_maxbytes": "5MB",
            "logfile_backups": "1",
            "pidfile": _literal(config.root / "supervisord.pid"),
            "childlogdir": _literal(config.logs),
            "directory": _literal(REPOSITORY),
            **root,
        },
        "unix_http_server": {"file": _literal(socket_path(config)), "chmod": "0700"},
        "supervisorctl": {"serverurl": _literal(f"unix://{socket_path(config)}")},
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        },
    }


def _section(config: StackConfig, part: Program) -> dict[str, str]:
    values = {
        "command": _literal(shlex.join(part.command)),
        "priority": str(part.priority),
        "autostart": "false",
        "autorestart": "true",
        "startsecs": "1",
        "startretries": "3",
        "stopsignal": part.stop_signal,
        "stopwaitsecs": str(part.stop_wait_s),
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": _literal(config.logs / f"{part.name}.log"),
        "stdout_logfile_maxbytes": "20MB",
        "stdout_logfile_backups": "3",
    }
    return values | ({"user": part.user} if part.user else {})


def _literal(value: object) -> str:
    """supervisord expands `%(name)s`."""
    return str(value).replace("%", "%%")
