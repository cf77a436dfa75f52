"""The hostfile, and what is started where."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.trainer.learner_nodes import (
    Host,
    Nodes,
    meeting_port,
    of_node,
    one_node,
    read_hostfile,
    remote_command,
    start,
)
from services.trainer.settings import TrainerSettings
from shared.kit.errors import SettingsError

TWO = Nodes((Host("node1", 2), Host("node2", 4)), "ssh {host}")


def hostfile(folder: Path, text: str) -> str:
    (folder / "hosts").write_text(text)
    return str(folder / "hosts")


def test_deepspeeds_format(tmp_path: Path) -> None:
    path = hostfile(tmp_path, "# mine\n\nnode1 slots=2\n  10.0.0.7   slots=4   # the other\n")
    nodes = read_hostfile(path, "ssh {host}", 29500)

    assert nodes == Nodes((Host("node1", 2), Host("10.0.0.7", 4)), "ssh {host}", 29500)
    assert nodes.ranks == 6


@pytest.mark.parametrize(
    ("text", "launcher", "expected"),
    [
        ("node1\n", "ssh {host}", "TABWISE_LEARNER_HOSTFILE: line 1 of .* is not `host slots=N`: 'node1'"),
        ("a slots=1\nb slots=0\n", "ssh {host}", "line 2 of"),
        ("a slots=1\na slots=1\n", "ssh {host}", "names a host twice"),
        ("# nobody\n", "ssh {host}", "names no host"),
        ("a slots=1\nb slots=1\n", "ssh node2", "TABWISE_LEARNER_LAUNCHER must say where the host's name goes"),
    ],
)
def test_a_wrong_hostfile_says_what_is_wrong(tmp_path: Path, text: str, launcher: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        read_hostfile(hostfile(tmp_path, text), launcher, 0)


def test_a_missing_hostfile_says_so() -> None:
    with pytest.raises(SettingsError, match="TABWISE_LEARNER_HOSTFILE: /no/such cannot be read"):
        read_hostfile("/no/such", "ssh {host}", 0)


def test_the_first_host_must_be_this_machine() -> None:
    elsewhere = Nodes((Host("192.0.2.1", 1), Host("node2", 1)), "ssh {host}")  # an address of nobody's (RFC 5737)
    with pytest.raises(SettingsError, match="its first host must be this machine"):
        meeting_port(elsewhere)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nodes = Nodes((Host("127.0.0.1", 1), Host("node2", 1)), "ssh {host}", taken.getsockname()[1])
        with pytest.raises(SettingsError, match="TABWISE_LEARNER_PORT"):
            meeting_port(nodes)


def test_one_process_or_torchrun() -> None:
    assert one_node("m", 1) == ["-m", "m"]
    assert one_node("m", 2) == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "m"]
    assert of_node(TWO, 1, 29500, "m")[2:-2] == [
        "--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=node1", "--master-port=29500",
    ]  # fmt: skip


def test_the_launcher_gets_one_command_for_a_shell() -> None:
    command = remote_command("ssh -o BatchMode=yes {host}", "node2", "/a b", "/usr/bin/python3")

    assert command[:-1] == ["ssh", "-o", "BatchMode=yes", "node2"]
    assert shlex.split(command[-1]) == [
        "cd", "/a b", "&&", "exec", "/usr/bin/python3", "-m", "services.trainer.learner_node",
    ]  # fmt: skip


def test_a_trainer_inside_a_process_group_keeps_its_rank_to_itself(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "7")
    [child] = start("tests.unit.trainer.print_environment", 1, None, {"TABWISE_TOLD": "this"})
    assert child.wait(30) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["TABWISE_TOLD"] == "this"
    assert not {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & said.keys()


def test_a_launcher_that_is_not_there_leaves_nothing_running() -> None:
    nodes = Nodes((Host("127.0.0.1", 1), Host("node2", 1)), "/no/such/ssh {host}")
    with pytest.raises(SettingsError, match="TABWISE_LEARNER_LAUNCHER: /no/such/ssh does not start"):
        start("http.server", 1, nodes, {"TABWISE_LEARNER_CONFIG": "{}"})


def test_number_of_ranks_is_the_hostfiles(tmp_path: Path) -> None:
    path = hostfile(tmp_path, "node1 slots=2\nnode2 slots=2\n")

    assert TrainerSettings().learner_nodes() is None
    assert (TrainerSettings(learner_hostfile=path).learner_nodes() or TWO).ranks == 4
    with pytest.raises(SettingsError, match="TABWISE_LEARNER_RANKS=2, but TABWISE_LEARNER_HOSTFILE has 4 slots"):
        TrainerSettings(learner_hostfile=path, learner_ranks=2).learner_nodes()


NODE = [sys.executable, "-m", "services.trainer.learner_node"]


def test_another_node_does_as_it_is_told() -> None:
    order = {"arguments": ["-c", "import os, sys; sys.exit(int(os.environ['STATUS']))"], "environment": {"STATUS": "7"}}
    with subprocess.Popen(NODE, stdin=subprocess.PIPE) as node:
        assert node.stdin is not None
        node.stdin.write(json.dumps(order).encode() + b"\n")
        node.stdin.flush()
        assert node.wait(20) == 7


def test_another_node_stops_when_the_trainer_is_gone() -> None:
    order = {"arguments": ["-c", "import time; print('up', flush=True); time.sleep(60)"], "environment": {}}
    with subprocess.Popen(NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(json.dumps(order).encode() + b"\n")
        node.stdin.flush()
        assert node.stdout.readline() == b"up\n"
        node.stdin.close()
        assert node.wait(20) != 0


def test_started_by_hand_another_node_says_who_starts_it() -> None:
    done = subprocess.run(NODE, input="hello\n", capture_output=True, text=True)

    assert done.returncode == 1
    assert "is started by the trainer" in done.stderr
