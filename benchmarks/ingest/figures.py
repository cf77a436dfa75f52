"""From what was measured to the figures that are printed. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

Measured = dict[str, Any]
PEERS = ("ours", "naive", "pgbench")


class Results:
    """All rounds of all peers."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], list[Measured]] = defaultdict(list)

    def add(self, peer: str, connections: int, measured: Measured) -> None:
        """One round."""
        self._seen[peer, connections].append(measured)

    def median(self, peer: str, connections: int, figure: str) -> float | None:
        """Over the rounds; None where it was not measured."""
        values = [measured[figure] for measured in self._seen[peer, connections] if figure in measured]
        return statistics.median(values) if values else None

    def ratio(self, connections: int, to: str) -> float | None:
        """Median over the rounds of ours / another's of the same round."""
        pairs = zip(self._seen["ours", connections], self._seen[to, connections], strict=False)
        ratios = [ours["events_per_s"] / other["events_per_s"] for ours, other in pairs if other["events_per_s"]]
        return round(statistics.median(ratios), 3) if ratios else None

    def failures(self, peer: str) -> int:
        """Of all rounds and loads."""
        return sum(measured["failures"] for (name, _), all_ in self._seen.items() if name == peer for measured in all_)


def lines(results: Results, connections: list[int]) -> list[dict[str, Any]]:
    """Events per second with the ratios, then the latencies; at the end whether anything failed or was lost."""
    found = []
    for count in connections:
        rates = _line(results, "events_per_s", count)
        found.append(rates | {f"ratio_{peer}": results.ratio(count, peer) for peer in PEERS[1:]})
        found += [_line(results, figure, count) for figure in ("p50_ms", "p99_ms")]
        with_loops = results.median("ours_with_loops", count, "events_per_s")
        if with_loops is not None:
            found.append(head("events_per_s_with_loops", connections=count) | {"ours": round(with_loops, 1)})
    found.append(head("failures") | {peer: results.failures(peer) for peer in PEERS})
    return found


def _line(results: Results, figure: str, connections: int) -> dict[str, Any]:
    values = {peer: results.median(peer, connections, figure) for peer in PEERS}
    shown = {peer: None if value is None else round(value, 3) for peer, value in values.items()}
    return head(figure, connections=connections) | shown


def head(figure: str, **facts: Any) -> dict[str, Any]:
    """How every line begins."""
    return {"bench": "ingest", "figure": figure, **facts}
