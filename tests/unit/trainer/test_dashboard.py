"""What the dashboard and the alerts ask of the trainer is what the trainer shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from services.trainer.metrics import TrainerMetrics

ROOT = Path(__file__).parents[3]
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def shown() -> set[str]:
    registry = CollectorRegistry()
    TrainerMetrics(registry)
    return {metric.name + suffix for metric in registry.collect() for suffix in _SUFFIXES[metric.type]}


def test_every_question_has_a_metric() -> None:
    files = [*(ROOT / "deploy/grafana/dashboards").glob("*.json"), *(ROOT / "deploy/prometheus").glob("*.yml")]
    asked = {name for file in files for name in re.findall(r"\btabwise_trainer_\w+", file.read_text())}
    assert len(asked) > 20
    assert asked - shown() == set()


def test_what_a_step_refuses_can_be_seen() -> None:
    """The gap between engine and learner, what is masked, and the steps that changed nothing."""
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/tabwise.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    for name in ("logprob_gap_mean", "logprob_gap_max", "effective_sample_share", "masked_share", "minibatches_total"):
        assert f"tabwise_trainer_{name}" in asked
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)
