"""The real libraries: the same names and values in TensorBoard's files, Weights & Biases offline, MLflow's store."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from services.trainer.learner.tracking import scalars
from services.trainer.learner.tracking.run import Tracking
from services.trainer.learner_api import CheckpointRef, LearnerConfig, RoundDone, StepDone, TrackerName
from services.trainer.settings import TrainerSettings
from shared.kit.errors import SettingsError


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """None of the variables of whoever runs this, none of ours afterwards."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def config(tmp_path: Path, *trackers: TrackerName, **changes: Any) -> LearnerConfig:
    told = {"tensorboard_dir": str(tmp_path / "board"), "run_dir": str(tmp_path / "runs"), "run_name": "my run"}
    return LearnerConfig(model_path="/secret/place/model-x", trackers=trackers, **(told | changes))


def step(minibatch: int, **changes: Any) -> StepDone:
    figures = dict.fromkeys(("kl", "grad_norm", "clip_share", "importance_mean", "importance_max"), 0.5)
    figures |= {"effective_sample_share": 0.9, "logprob_gap_mean": 0.01, "loss": 0.25 + minibatch, "seconds": 0.5}
    return StepDone(minibatch=minibatch, groups=2, tokens=10, **(figures | changes))


def done(version: int) -> RoundDone:
    return RoundDone(target=CheckpointRef(version=version, lineage="l", folder="f"), seconds=3.0, peak_rss_mb=100.0)


def track(config: LearnerConfig, first_step: int = 1, version: int = 7) -> dict[str, int]:
    """Two steps and a round."""
    tracking = Tracking(config)
    steps = [step(0), step(1, skipped="logprob_gap")]
    for at, one in enumerate(steps):
        tracking.step(one, first_step + at, 1e-4)
    tracking.round(done(version), steps, {"reward": 0.75})
    tracking.close(within_s=30)
    return tracking.take_lost()


def expected() -> dict[str, list[tuple[int, Any]]]:
    """Name → step and value."""
    told: dict[str, list[tuple[int, Any]]] = {}
    steps = [step(0), step(1, skipped="logprob_gap")]
    entries = [
        (1, scalars.of_step(steps[0], 1e-4)),
        (2, scalars.of_step(steps[1], 1e-4)),
        (7, scalars.of_round(done(7), steps, {"reward": 0.75})),
    ]
    for at, figures in entries:
        for name, value in figures.items():
            told.setdefault(name, []).append((at, pytest.approx(value)))
    return told


def in_tensorboard(tmp_path: Path) -> dict[str, list[tuple[int, float]]]:
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    return {name: [(e.step, e.value) for e in board.Scalars(name)] for name in board.Tags()["scalars"]}


def wandb_records(tmp_path: Path) -> list[Any]:
    records = []
    for file in sorted((tmp_path / "runs" / "wandb").glob("offline-run-*/run-*.wandb")):
        for data in entries(file.read_bytes()):
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined] # made at run time
            record.ParseFromString(data)
            records.append(record)
    return records


def entries(data: bytes) -> Iterator[bytes]:
    """Of a `.wandb` file: LevelDB's log format, blocks of 32 KiB, after seven bytes of its own."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, part = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # whole, or the last of several
            yield whole
            whole = b""


def in_wandb(tmp_path: Path) -> dict[str, list[tuple[int, float]]]:
    told: dict[str, list[tuple[int, float]]] = {}
    for record in wandb_records(tmp_path):
        if record.WhichOneof("record_type") != "history":
            continue
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        axis = "train/step" if "train/step" in row else "round/version"
        for name, value in row.items():
            if name != axis and not name.startswith("_"):
                told.setdefault(name, []).append((row[axis], value))
    return told


def mlflow_runs(tmp_path: Path) -> list[MlflowRun]:
    client = MlflowClient(tracking_uri=(tmp_path / "runs" / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("tabwise")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def in_mlflow(tmp_path: Path) -> dict[str, list[tuple[int, float]]]:
    client = MlflowClient(tracking_uri=(tmp_path / "runs" / "mlruns").as_uri())
    (run,) = mlflow_runs(tmp_path)
    return {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def test_the_same_names_and_values_everywhere(tmp_path: Path) -> None:
    assert track(config(tmp_path, "tensorboard", "wandb", "mlflow")) == {}
    assert in_tensorboard(tmp_path) == expected()
    assert in_wandb(tmp_path) == expected()
    assert in_mlflow(tmp_path) == expected()


def test_the_run_says_how_it_was_set_and_nothing_else(tmp_path: Path) -> None:
    """No path, no environment variable, nothing of this machine, no source code."""
    os.environ["TEAM_SECRET"] = "s3cret-of-the-team"
    track(config(tmp_path, "wandb", "mlflow", learning_rate=0.125))
    (run,) = mlflow_runs(tmp_path)
    assert run.data.params["learning_rate"] == "0.125"
    assert run.data.params["model"] == "model-x"
    assert set(run.data.tags) == {"mlflow.runName"}
    kept = {item.key: json.loads(item.value_json) for record in wandb_records(tmp_path)
            if record.WhichOneof("record_type") == "run" for item in record.run.config.update}  # fmt: skip
    assert (kept["learning_rate"], kept["model"]) == (0.125, "model-x")
    for secret in (b"s3cret", b"/secret/place", socket.gethostname().encode() + b"\x00", b"test_trackers.py"):
        for file in (tmp_path / "runs").rglob("*"):
            if file.is_file() and file.suffix != ".log":
                assert secret not in file.read_bytes(), (secret, file)
    assert not list((tmp_path / "runs").rglob("requirements.txt"))
    assert not list((tmp_path / "runs").rglob("wandb-metadata.json"))


def test_a_restart_goes_on_with_the_run_of_that_name(tmp_path: Path) -> None:
    track(config(tmp_path, "wandb", "mlflow"))
    track(config(tmp_path, "wandb", "mlflow", learning_rate=0.5), first_step=3, version=8)
    (run,) = mlflow_runs(tmp_path)
    assert run.info.status == "FINISHED"
    assert [at for at, _ in in_mlflow(tmp_path)["round/reward"]] == [7, 8]
    runs = {r.run.run_id for r in wandb_records(tmp_path) if r.WhichOneof("record_type") == "run"}
    assert runs == {"my-run"}
    assert sorted(at for at, _ in in_wandb(tmp_path)["round/reward"]) == [7, 8]


def test_without_a_name_each_start_is_a_run(tmp_path: Path) -> None:
    track(config(tmp_path, "mlflow", run_name=None))
    time.sleep(1.1)  # names are by the second
    track(config(tmp_path, "mlflow", run_name=None))
    assert len(mlflow_runs(tmp_path)) == 2


def test_servers_that_are_away_slow_nothing(tmp_path: Path) -> None:
    """TensorBoard gets all of it meanwhile; what the others lost is counted when it is known."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        os.environ |= {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "1",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        }
        tracking = Tracking(config(tmp_path, "tensorboard", "mlflow"))
        started = time.monotonic()
        for at in range(20):
            tracking.step(step(at), at, 1e-4)
        tracking.round(done(7), [step(0)], {})
        assert time.monotonic() - started < 0.5
        lost = 0
        while lost < 21:
            assert time.monotonic() - started < 30
            lost += tracking.take_lost().get("mlflow", 0)
            time.sleep(0.05)
        tracking.close()
    assert len(in_tensorboard(tmp_path)["train/loss"]) == 20
    assert lost == 21


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    at = str(tmp_path / "file" / "sub")
    assert track(config(tmp_path, "tensorboard", "wandb", "mlflow", tensorboard_dir=at, run_dir=at)) == {
        "tensorboard": 3,
        "wandb": 3,
        "mlflow": 3,
    }


def test_ranks_beyond_the_first_and_no_trackers_track_nothing(tmp_path: Path) -> None:
    Tracking(config(tmp_path, "tensorboard"), first=False).close()
    track(config(tmp_path))
    track(config(tmp_path, "tensorboard", tensorboard_dir=None))
    assert list(tmp_path.iterdir()) == []


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_TRACKERS", "tensorboard, mlflow")
    assert TrainerSettings.load().learner_config().trackers == ("tensorboard", "mlflow")
    monkeypatch.setenv("TABWISE_TRACKERS", "")
    assert TrainerSettings.load().trackers == ()
    monkeypatch.setenv("TABWISE_TRACKERS", "tensorbord")
    with pytest.raises(SettingsError, match=r"TABWISE_TRACKERS: .*no tracker 'tensorbord'; known are tensorboard"):
        TrainerSettings.load()
