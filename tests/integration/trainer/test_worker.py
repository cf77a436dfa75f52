"""The real thing as a process: `python -m services.trainer` with Celery, its clock, metrics and a learner child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
import redis

from deploy.local.embedded import free_port
from services.trainer.checks import check, check_database
from services.trainer.settings import TrainerSettings
from shared.contracts.names import QUEUE_PUBLISHER, STREAM_EXPERIENCE, TASK_RECONCILE
from shared.kit.errors import SettingsError
from shared.worker.checks import check_metrics_port
from tests.fakes.engine import FakeEngine
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience

WORKER = [sys.executable, "-m", "services.trainer"]


@pytest.fixture
def environment(clean_db: str, clean_redis: str, engine: FakeEngine, tmp_path: Path) -> dict[str, str]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"vocab_size": 512}')
    told = {
        "DATABASE_URL": clean_db,
        "REDIS_URL": clean_redis,
        "BROKER_URL": clean_redis.rsplit("/", 1)[0] + "/1",
        "ENGINE_URLS": engine.url,
        "MODEL_PATH": str(model),
        "CHECKPOINT_ROOT": str(tmp_path / "checkpoints"),
        "TRAINER_METRICS_PORT": str(free_port()),
        "TRAINER_TICK_S": "0.2",
        "MINIBATCH_SIZE": "4",
        "MINIBATCHES_PER_CHECKPOINT": "1",
        "GROUP_SIZE": "4",
        "MAX_WAIT_S": "0.5",
        "LEARNER_MODULE": "tests.fakes.learner",
        "STOP_GRACE_S": "5",
    }
    return os.environ | {f"TABWISE_{name}": value for name, value in told.items()}


@contextmanager
def worker(environment: dict[str, str], command: list[str] = WORKER) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.1)


def metrics(environment: dict[str, str]) -> str:
    url = f"http://127.0.0.1:{environment['TABWISE_TRAINER_METRICS_PORT']}/metrics"
    with urlopen(url, timeout=2) as answer:
        return str(answer.read().decode())


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_trains_tells_the_publisher_and_stops_cleanly(bench: Bench, environment: dict[str, str]) -> None:
    await bench.put(*(experience() for _ in range(8)))
    with worker(environment) as process:
        until(lambda: len(bench.rounds()) == 2)
        await bench.put(experience())
        until(lambda: len(bench.rounds()) == 3)
        shown = metrics(environment)
        learner = children(process.pid)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert [row.version for row in bench.rounds()] == [1, 2, 3]
    assert 'tabwise_trainer_experience_total{disposition="trained"} 9.0' in shown
    assert "tabwise_trainer_committed_version 3.0" in shown
    assert learner
    assert not any(Path(f"/proc/{pid}").exists() for pid in learner)
    with redis.Redis.from_url(environment["TABWISE_BROKER_URL"]) as broker:
        queued = [json.loads(message)["headers"]["task"] for message in broker.lrange(QUEUE_PUBLISHER, 0, -1)]
    assert queued == [TASK_RECONCILE] * 3
    assert "Traceback" not in log


async def test_killed_in_a_round_it_goes_on_after_a_restart(
    bench: Bench, environment: dict[str, str], tmp_path: Path
) -> None:
    batch = [experience() for _ in range(4)]
    await bench.put(*batch)
    began = tmp_path / "began"
    slow = environment | {"TABWISE_FAKE_LEARNER": json.dumps({"step_s": 60, "began": str(began)})}
    with worker(slow) as process:
        until(began.exists)
        family = children(process.pid)
        process.kill()
        process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    assert bench.rounds() == []
    with worker(environment):
        until(lambda: len(bench.rounds()) == 1)
    assert bench.dispositions() == {one.experience_id: "trained" for one in batch}
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0


async def test_told_to_stop_in_a_long_round_it_abandons_it(
    bench: Bench, environment: dict[str, str], tmp_path: Path
) -> None:
    await bench.put(*(experience() for _ in range(4)))
    began = tmp_path / "began"
    faults = json.dumps({"step_s": 60, "began": str(began)})
    slow = environment | {"TABWISE_FAKE_LEARNER": faults, "TABWISE_STOP_GRACE_S": "0.5"}
    with worker(slow) as process:
        until(began.exists)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "round abandoned" in log
    assert await bench.streams.length(STREAM_EXPERIENCE) == 4


async def test_the_celery_command_starts_it_too(bench: Bench, environment: dict[str, str]) -> None:
    await bench.put(*(experience() for _ in range(4)))
    command = [sys.executable, "-m", "celery", "-A", "services.trainer.celery_app", "worker", "--pool", "solo",
               "--queues", "trainer", "--without-gossip", "--without-mingle", "--without-heartbeat"]  # fmt: skip
    with worker(environment, command) as process:
        until(lambda: len(bench.rounds()) == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("BROKER_URL", "redis://127.0.0.1:9/1", "TABWISE_BROKER_URL"),
        ("BROKER_URL", "nonsense://x", "TABWISE_BROKER_URL"),
        ("REDIS_URL", "redis://127.0.0.1:9/0", "TABWISE_REDIS_URL"),
        ("DATABASE_URL", "postgresql+psycopg://x@127.0.0.1:9/x", "TABWISE_DATABASE_URL"),
        ("DATABASE_URL", "nonsense", "TABWISE_DATABASE_URL"),
        ("MODEL_PATH", "/nowhere/model", "TABWISE_MODEL_PATH"),
        ("MODEL_PATH", "/", "TABWISE_MODEL_PATH"),
        ("CHECKPOINT_ROOT", "/proc/nowhere", "TABWISE_CHECKPOINT_ROOT"),
        ("ENGINE_URLS", "localhost:8000", "TABWISE_ENGINE_URLS"),
        ("ENGINE_URLS", " , ", "TABWISE_ENGINE_URLS"),
        ("ADVANTAGE", "guess", "TABWISE_ADVANTAGE"),
        ("TRAINER_METRICS_PORT", "0", "TABWISE_TRAINER_METRICS_PORT"),
        ("METRICS_HOST", "192.0.2.1", "TABWISE_METRICS_HOST"),
    ],
)
def test_a_wrong_setting_is_named(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    for variable, said in environment.items():
        monkeypatch.setenv(variable, said)
    monkeypatch.setenv(f"TABWISE_{name}", value)
    with pytest.raises(SettingsError, match=named):
        check(TrainerSettings.load())


def test_missing_tables_and_a_taken_port_are_named(clean_db: str, engine: FakeEngine) -> None:
    with pytest.raises(SettingsError, match="python -m migrations"):
        check_database(clean_db.rsplit("/", 1)[0] + "/postgres")
    with pytest.raises(SettingsError, match="TABWISE_TRAINER_METRICS_PORT"):
        check_metrics_port("TABWISE_TRAINER_METRICS_PORT", "127.0.0.1", int(engine.url.rsplit(":", 1)[1]))


def test_a_wrong_setting_is_one_sentence_and_status_2(environment: dict[str, str]) -> None:
    wrong = environment | {"TABWISE_MODEL_PATH": "/nowhere/model"}
    done = subprocess.run(WORKER, env=wrong, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "trainer: TABWISE_MODEL_PATH: there is no model folder at /nowhere/model\n"


def test_a_model_that_does_not_load_is_one_sentence(environment: dict[str, str]) -> None:
    broken = environment | {"TABWISE_FAKE_LEARNER": json.dumps({"refuse_to_load": "no weights in it"})}
    done = subprocess.run(WORKER, env=broken, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "no weights in it" in done.stderr
    assert "TABWISE_MODEL_PATH" in done.stderr
    assert "Traceback" not in done.stderr


async def test_the_last_rounds_as_a_table(bench: Bench, environment: dict[str, str]) -> None:
    await bench.put(*(experience() for _ in range(4)))
    await bench.trainer().tick()
    await bench.put(experience(prompt_token_ids=[]))
    await bench.trainer(max_wait_s=0).tick()
    wide = environment | {"COLUMNS": "120"}
    done = subprocess.run([*WORKER, "rounds"], env=wide, capture_output=True, text=True, timeout=60, check=True)
    assert "1 invalid" in done.stdout
    assert "0.1000" in done.stdout
