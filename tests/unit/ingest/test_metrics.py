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


def test_what_rates_are_taken_of_is_there_from_the_start_and_never_falls() -> None:
    metrics = IngestMetrics(CollectorRegistry())
    assert _resolved(metrics) == [0.0, 0.0, 0.0, 0.0]
    metrics.resolved_display("accepted", 0.75, 3, "p")
    metrics.resolved_display("rejected", -0.25, 4, "q")
    assert _resolved(metrics) == [1.0, 1.0, 0.75, 0.25]


def _resolved(metrics: IngestMetrics) -> list[float | None]:
    value = metrics.registry.get_sample_value
    return [
        *(value("tabwise_ingest_resolved_total", {"label": label}) for label in ("accepted", "rejected")),
        *(value("tabwise_ingest_resolved_reward_total", {"sign": sign}) for sign in ("positive", "negative")),
    ]
