"""MLflow. Where to, and how to log in, its own variables say: MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, …

Without an address, files below `run_dir` (`mlflow ui --backend-store-uri …`). Its telemetry is off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it looks when it is imported

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from services.trainer.learner.tracking.tracker import PROJECT, Run

_FINISHED = "FINISHED"


class MLflow:
    """A `Tracker`."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, step) for name, value in figures.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """See `Tracker`."""
        self._client.set_terminated(self._run_id, _FINISHED)


def open_mlflow(run: Run) -> MLflow:
    """Go on with the run of that name, or begin it."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or _files(run.folder))
    experiment_id = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    return MLflow(client, _earlier(client, experiment_id, run) or _begin(client, experiment_id, run))


def _files(folder: Path) -> str:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # kept as it is by its makers; it needs no server
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "mlruns").as_uri()


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _earlier(client: MlflowClient, experiment_id: str, run: Run) -> str | None:
    """The newest run of that name, running again."""
    for found in client.search_runs([experiment_id], order_by=["attributes.start_time DESC"]):
        if found.info.run_name == run.name:
            client.update_run(found.info.run_id, status="RUNNING")
            return str(found.info.run_id)
    return None


def _begin(client: MlflowClient, experiment_id: str, run: Run) -> str:
    run_id = str(client.create_run(experiment_id, run_name=run.name).info.run_id)
    client.log_batch(run_id, params=[Param(name, str(value)) for name, value in run.config.items()])
    return run_id
