from __future__ import annotations

from prometheus_client import CollectorRegistry

from services.gateway.capture import Capture
from services.gateway.metrics import VERSIONS_KEPT, GatewayMetrics
from shared.contracts.generation import Generation
from tests.unit.gateway.support import a_call, a_delta


def generation(text: str = "x", version: str | None = "1", finish: str | None = "stop") -> Generation:
    capture = Capture(a_call())
    capture.add(a_delta(text, version=version, finish_reason=finish, pieces=[""]))
    return capture.generations(replica="", client_gone=False, failed=False, first_token_s=0.1, total_s=0.2)[0]


def test_latency_series_of_old_versions_go_away() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)

    for version in [*range(100), 3]:
        metrics.observe(generation(version=str(version)))
    metrics.observe(generation(version=None))

    series = {
        sample.labels["version"]
        for metric in registry.collect()
        for sample in metric.samples
        if "version" in sample.labels
    }
    assert series == {str(version) for version in range(100 - VERSIONS_KEPT, 100)} | {"unknown"}


def test_suggestion_rate_counts_silence() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)

    for text, finish in [("return", "stop"), ("", "stop"), (" \n", "length"), ("", None), ("half", None)]:
        metrics.observe(generation(text, finish=finish))

    counts = {
        name: registry.get_sample_value("tabwise_gateway_choices_total", {"outcome": name})
        for name in ("suggested", "silent", "cut")
    }
    assert counts == {"suggested": 2, "silent": 2, "cut": 1}
