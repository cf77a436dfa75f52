"""The embedded stack: real PostgreSQL, Redis and supervisord."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

import psutil
import psycopg
import pytest
import redis

from deploy.local import preflight
from deploy.local.config import StackConfig
from deploy.local.embedded import EmbeddedPostgres
from deploy.local.processes import Family
from deploy.local.stack import Progress, Stack, StackError
from deploy.local.supervision import Supervisor
from shared.kit.errors import SettingsError
from tests.integration.local.conftest import SERVES, ServiceCode

StandIn = Callable[[ServiceCode], None]


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def supervisor_pid(config: StackConfig) -> int:
    return int((config.root / "supervisord.pid").read_text())


def test_starts_migrates_keeps_its_data_and_leaves_nobody_behind(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": SERVES})
    seen: list[Progress] = []
    with Stack(config, seen.append) as stack:
        session = supervisor_pid(config)
        with psycopg.connect(config.database_url.replace("+psycopg", "")) as ledger:
            ledger.execute("INSERT INTO value_trackers (bucket, mean, weight) VALUES ('p/python/1', 0.5, 2)")
        with redis.Redis.from_url(config.redis.url()) as client:
            client.xadd("kept", {"payload": "x"})
        wait_until(lambda: {state.state for state in Supervisor(config).states()} == {"RUNNING"})
        wait_until(lambda: stack.peak_rss_mb > 20)
    assert [item.part for item in seen if item.event == "ready"][-1] == "gateway"
    assert not Family(session).members()

    with Stack(config):
        with psycopg.connect(config.database_url.replace("+psycopg", "")) as ledger:
            assert ledger.execute("SELECT mean FROM value_trackers").fetchall() == [(0.5,)]
        with redis.Redis.from_url(config.redis.url()) as client:
            assert client.xlen("kept") == 1


def test_a_part_that_dies_is_started_again(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": SERVES})
    seen: list[Progress] = []
    with Stack(config, seen.append) as stack:
        stack.check_alive()
        for part in ("gateway", "postgres"):
            stack.kill(part)

        def restarted() -> set[str]:
            stack.check_alive()
            return {item.part for item in seen if item.event == "restarted"}

        wait_until(lambda: restarted() == {"gateway", "postgres"}, 30)
        wait_until(config.postgres.ready)


def test_children_of_a_part_that_died_do_not_stay(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": "import subprocess; subprocess.Popen(['sleep', '600'])\n" + SERVES})
    with Stack(config) as stack:
        family = Family(supervisor_pid(config))
        stack.check_alive()
        stack.kill("gateway")

        def sleepers() -> int:
            stack.check_alive()
            return sum(process.name() == "sleep" for process in family.members())

        wait_until(lambda: sleepers() == 2 or "RUNNING" in {s.state for s in Supervisor(config).states()})
        wait_until(lambda: sleepers() == 1)
    assert not family.members()


def test_a_part_that_keeps_dying_ends_in_one_sentence(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": SERVES})
    with Stack(config) as stack, pytest.raises(StackError, match=r"gateway keeps dying.*gateway\.log"):
        keep_killing(stack, config, "gateway")


def keep_killing(stack: Stack, config: StackConfig, part: str) -> None:
    for _ in range(200):
        stack.check_alive()
        if any(state.name == part and state.state == "RUNNING" for state in Supervisor(config).states()):
            stack.kill(part)
        time.sleep(0.1)


def test_a_part_that_ends_while_starting_is_quoted(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": "import sys; sys.exit('TABWISE_TEMPERATURE_OVERRIDE: must be above 0')"})
    with pytest.raises(
        StackError, match=r"gateway did not start: TABWISE_TEMPERATURE_OVERRIDE: must be above 0 \(log: "
    ):
        Stack(config).__enter__()
    assert not Family(supervisor_pid_of_last_run(config)).members()


def supervisor_pid_of_last_run(config: StackConfig) -> int:
    text = (config.logs / "supervisord.log").read_text()
    return int(text.split("supervisord started with pid ")[1].split()[0])


def test_a_part_that_never_answers_names_the_time_limit(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": "import time; time.sleep(60)"})
    short = config.model_copy(update={"start_timeout_s": 2.0})
    with pytest.raises(StackError, match="TABWISE_START_TIMEOUT_S"):
        Stack(short).__enter__()


def test_only_one_stack_in_one_data_folder(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": SERVES})
    with Stack(config):
        with pytest.raises(SettingsError, match=rf"already running .*process {os.getpid()}"):
            Stack(config).__enter__()
        Supervisor(config).states()
    assert preflight.owner(config) is None


@pytest.mark.parametrize("field", StackConfig.ports_by_field())
def test_a_taken_port_names_its_setting(config: StackConfig, field: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", getattr(config, field)))
        other.listen()
        with pytest.raises(SettingsError, match=f"TABWISE_{field.upper()}"):
            Stack(config).__enter__()


def test_a_database_folder_that_is_no_database_says_so(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({})
    folder = config.postgres.folder
    folder.mkdir(parents=True)
    (folder / "something").write_text("else")
    with pytest.raises(SettingsError, match=r"PostgreSQL cannot prepare .* TABWISE_DATA_DIR"):
        Stack(config).__enter__()


def test_supervisord_killed_leaves_nobody_behind(config: StackConfig, stand_in: StandIn) -> None:
    stand_in({"gateway": SERVES})
    with Stack(config) as stack:
        session = supervisor_pid(config)
        psutil.Process(session).send_signal(signal.SIGKILL)
        with pytest.raises(StackError, match="process manager has ended"):
            stack.watch(5, every_s=0.1)
    assert not Family(session).members()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account run PostgreSQL")
def test_root_below_a_private_folder(config: StackConfig) -> None:
    private = config.root / "private"
    private.mkdir(parents=True, mode=0o700)
    server = EmbeddedPostgres(private / "postgres", config.postgres_port)
    assert not server.folder.is_relative_to(private)
    assert private.stat().st_mode & 0o777 == 0o700
