"""Where the learner's ranks run: in one process, in several on this machine, or on the hosts of a hostfile.

Several nodes: torchrun on each, which meet at the first host of the file, the trainer's own; its first rank is rank 0
and holds the socket. The others are started by a command (ssh) that runs `services.trainer.learner_node` there. What
they are told goes through its standard input, never over a command line; its end is their sign to stop.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel

from services.trainer.learner_api import LEARNER_CONFIG
from services.trainer.lifeline import dying_with_us, end
from shared.kit.errors import SettingsError

_LINE = re.compile(r"^(?P<name>[^\s#]+)\s+slots=(?P<slots>[1-9]\d*)\s*(#.*)?$")
_EXPORTED = ("NCCL_", "GLOO_", "TORCH_", "OMP_", "HF_", "DS_")
"""Beginnings of the environment variables that the other nodes get as they are here."""
_OF_A_GROUP = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
"""What a process group tells its members: whoever started us may be one, the learner's ranks are none of it."""


@dataclass(frozen=True, slots=True)
class Host:
    """One line of the hostfile."""

    name: str
    slots: int
    """Ranks there."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Several hosts, the trainer's own first, and how the others are reached."""

    hosts: tuple[Host, ...]
    launcher: str
    """Command that runs its last argument in a shell on `{host}`."""
    port: int = 0
    """Where the ranks meet, on the first host; 0: any that is free."""

    @property
    def ranks(self) -> int:
        """Of all hosts."""
        return sum(host.slots for host in self.hosts)


class Order(BaseModel):
    """What another node is told, as one line of JSON on standard input."""

    arguments: list[str]
    """Of Python."""
    environment: dict[str, str]


def read_hostfile(path: str, launcher: str, port: int) -> Nodes:
    """DeepSpeed's format: a line `host slots=N` for each host; `#` begins a comment. Raises `SettingsError`."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"TABWISE_LEARNER_HOSTFILE: {path} cannot be read ({type(error).__name__})") from error
    told = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    hosts = tuple(_host(path, number, line) for number, line in told if line and not line.startswith("#"))
    if not hosts:
        raise SettingsError(f"TABWISE_LEARNER_HOSTFILE: {path} names no host; write lines such as `node1 slots=8`")
    if len({host.name for host in hosts}) < len(hosts):
        raise SettingsError(f"TABWISE_LEARNER_HOSTFILE: {path} names a host twice")
    if len(hosts) > 1 and "{host}" not in launcher:
        raise SettingsError("TABWISE_LEARNER_LAUNCHER must say where the host's name goes: `ssh {host}`")
    return Nodes(hosts, launcher, port)


def _host(path: str, number: int, line: str) -> Host:
    found = _LINE.match(line)
    if found is None:
        raise SettingsError(f"TABWISE_LEARNER_HOSTFILE: line {number} of {path} is not `host slots=N`: {line[:80]!r}")
    return Host(found["name"], int(found["slots"]))


def start(
    module: str, ranks: int, nodes: Nodes | None, told: Mapping[str, str], output: BinaryIO | None = None
) -> list[subprocess.Popen[bytes]]:
    """Start the learner; the first process is the one on this machine. `told` are its environment variables, `output`
    takes what all of them print (None: as it is ours)."""
    if nodes is not None and len(nodes.hosts) > 1:
        return _start_on(nodes, module, told, output)
    return [_start_here(one_node(module, ranks if nodes is None else nodes.hosts[0].slots), told, output)]


def outside_groups() -> dict[str, str]:
    """Our environment as a process has it that belongs to no process group."""
    return {name: value for name, value in os.environ.items() if name not in _OF_A_GROUP}


def one_node(module: str, ranks: int) -> list[str]:
    """Python's arguments for that many ranks on one machine. Pure."""
    if ranks == 1:
        return ["-m", module]
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", module]


def of_node(nodes: Nodes, index: int, port: int, module: str) -> list[str]:
    """Python's arguments on the host of this index. Pure."""
    return [
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(nodes.hosts)}",
        f"--node-rank={index}",
        f"--nproc-per-node={nodes.hosts[index].slots}",
        f"--master-addr={nodes.hosts[0].name}",
        f"--master-port={port}",
        "-m",
        module,
    ]


def remote_command(launcher: str, host: str, folder: str, python: str) -> list[str]:
    """The launcher for this host, with what to run there as its last argument. Pure."""
    here = f"cd {shlex.quote(folder)} && exec {shlex.quote(python)} -m services.trainer.learner_node"
    return [*(part.replace("{host}", host) for part in shlex.split(launcher)), here]


def _start_on(
    nodes: Nodes, module: str, told: Mapping[str, str], output: BinaryIO | None
) -> list[subprocess.Popen[bytes]]:
    port = meeting_port(nodes)
    children = [_start_here(of_node(nodes, 0, port, module), told, output)]
    exported = {name: value for name, value in os.environ.items() if name.startswith(_EXPORTED)}
    environment = exported | {LEARNER_CONFIG: told[LEARNER_CONFIG]}
    try:
        for index, host in enumerate(nodes.hosts[1:], start=1):
            children.append(_start_there(nodes.launcher, host, output))
            _tell(children[-1], Order(arguments=of_node(nodes, index, port, module), environment=environment))
    except (OSError, SettingsError):
        for child in children:
            end(child, 0)
        raise
    return children


def meeting_port(nodes: Nodes) -> int:
    """The port, which is free now. Raises `SettingsError` where the first host is not this machine."""
    first = nodes.hosts[0].name
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(first, nodes.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise SettingsError(
            f"TABWISE_LEARNER_HOSTFILE: its first host must be this machine, and {first} port {nodes.port} "
            f"(TABWISE_LEARNER_PORT) cannot be opened here ({error.strerror})"
        ) from error


def _start_here(arguments: list[str], told: Mapping[str, str], output: BinaryIO | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**outside_groups(), **told},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=dying_with_us(),
    )


def _start_there(launcher: str, host: Host, output: BinaryIO | None) -> subprocess.Popen[bytes]:
    command = remote_command(launcher, host.name, str(Path.cwd()), sys.executable)
    try:
        return subprocess.Popen(
            command,
            env=outside_groups(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=dying_with_us(),
        )
    except OSError as error:
        raise SettingsError(f"TABWISE_LEARNER_LAUNCHER: {command[0]} does not start ({error.strerror})") from error


def _tell(child: subprocess.Popen[bytes], order: Order) -> None:
    assert child.stdin is not None
    child.stdin.write(order.model_dump_json().encode() + b"\n")
    child.stdin.flush()  # and it stays open: its end is theirs
