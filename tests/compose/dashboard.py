"""Asks a real Prometheus every question of the Grafana dashboard. In: the dashboard's JSON. Out: what has no answer."""

from __future__ import annotations

import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path("deploy/grafana/dashboards/tabwise.json")
WINDOW_S, STEP_S = 900, 15
FAULTS = {
    "tabwise_gateway_upstream_errors_total",
    "tabwise_gateway_generations_dropped_total",
    "tabwise_publisher_failures_total",
    "tabwise_ingest_refused_total",
    "tabwise_ingest_experience_withheld_total",
    "tabwise_trainer_tracking_lost_total",
}
"""Counters that have no series before something went wrong; that a target declares them is enough."""


@dataclass(frozen=True)
class Query:
    """One line of one panel."""

    panel: str
    expression: str

    @property
    def metrics(self) -> set[str]:
        """The names of ours in it."""
        return set(re.findall(r"\btabwise_\w+", self.expression))


def queries(path: Path = DASHBOARD) -> list[Query]:
    """All of the dashboard, with Grafana's own variable filled in."""
    return [
        Query(panel.get("title", ""), target["expr"].replace("$__rate_interval", "1m"))
        for panel in _panels(json.loads(path.read_text())["panels"])
        for target in panel.get("targets", [])
    ]


def value_now(prometheus: str, panel: str) -> float:
    """The figure of a panel that shows one."""
    query = next(query for query in queries() if query.panel == panel)
    return float(_get(prometheus, "query", query=query.expression)["result"][0]["value"][1])


def without_answer(prometheus: str, query: Query) -> bool:
    """Whether the last minutes hold not one number for it, although nothing says that it may be silent."""
    end = time.time()
    answer = _get(
        prometheus, "query_range", query=query.expression, start=str(end - WINDOW_S), end=str(end), step=str(STEP_S)
    )
    if any(math.isfinite(float(value)) for series in answer["result"] for _, value in series["values"]):
        return False
    return not (query.metrics <= FAULTS and all(_declared(prometheus, name) for name in query.metrics))


def _declared(prometheus: str, metric: str) -> bool:
    """A target names the metric, be it without a series. Newer formats leave `_total` out of a counter's name."""
    return any(_get(prometheus, "metadata", metric=name) for name in (metric, metric.removesuffix("_total")))


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def _get(prometheus: str, what: str, **parameters: str) -> Any:
    url = f"{prometheus}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]
