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
