"""Labels stay bounded whatever clients and time bring."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from services.ingest.metrics import PROJECTS_KEPT, VERSIONS_KEPT, IngestMetrics


def test_versions_and_projects_are_bounded() -> None:
    metrics = IngestMetrics(CollectorRegistry())
    for version in range(100):
        metrics.resolved_display("accepted", 0.75, version, f"p{version}")
        metrics.resolved_display("rejected", -0.25, 0, "p0")
    lines = [line for line in generate_latest(metrics.registry).decode().splitlines() if "displays_total{" in line]
    versions = {line.partition('policy_version="')[2].partition('"')[0] for line in lines}
    projects = {line.partition('project="')[2].partition('"')[0] for line in lines}
    assert versions == {"older", *(str(version) for version in range(100 - VERSIONS_KEPT, 100))}
    assert projects <= {"other", *(f"p{number}" for number in range(PROJECTS_KEPT))}


def test_a_reward_of_either_sign_only_ever_raises_a_counter() -> None:
    metrics = IngestMetrics(CollectorRegistry())
    metrics.resolved_display("accepted", 0.75, 3, "p")
    assert metrics.registry.get_sample_value("tabwise_ingest_reward_total", _labels("negative")) == 0.0
    metrics.resolved_display("rejected", -0.25, 3, "p")
    assert metrics.registry.get_sample_value("tabwise_ingest_reward_total", _labels("positive")) == 0.75
    assert metrics.registry.get_sample_value("tabwise_ingest_reward_total", _labels("negative")) == 0.25


def _labels(sign: str) -> dict[str, str]:
    return {"sign": sign, "policy_version": "3", "project": "p"}
