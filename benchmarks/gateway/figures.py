"""From what the load generator saw to the figures that are printed. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Measured = dict[str, Any]
PEERS = ("ours", "litellm", "nginx")
FIGURES = (
    ("added_p50_ms", "p50_ms"),
    ("added_p99_ms", "p99_ms"),
    ("rps", "rps"),
    ("cpu_ms_per_request", "cpu_ms"),
)
"""Name of the figure, and what it is made of. CPU time is the steadiest of them on a shared machine."""


@dataclass(frozen=True, order=True)
class Case:
    """One load."""

    stream: bool
    connections: int


class Results:
    """All rounds of all peers."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Case], list[Measured]] = defaultdict(list)

    def add(self, peer: str, case: Case, measured: Measured) -> None:
        """One round."""
        self._seen[peer, case].append(measured)

    def median(self, peer: str, case: Case, figure: str) -> float | None:
        """Over the rounds; None where the peer was not measured."""
        values = [measured[figure] for measured in self._seen[peer, case] if figure in measured]
        return statistics.median(values) if values else None

    def failures(self, peer: str) -> int:
        """Of all rounds and loads."""
        return sum(measured["failures"] for (name, _), all_ in self._seen.items() if name == peer for measured in all_)

    def added(self, peer: str, case: Case, figure: str) -> float | None:
        """Median of `figure` beyond that of a direct connection."""
        direct, through = self.median("direct", case, figure), self.median(peer, case, figure)
        return None if direct is None or through is None else through - direct


def lines(results: Results, cases: list[Case]) -> list[dict[str, Any]]:
    """One per figure; `ratio` is ours / LiteLLM's."""
    found = []
    for case in sorted(cases):
        for name, figure in FIGURES:
            value = results.added if name.startswith("added_") else results.median
            found.append(_line(name, case, {peer: value(peer, case, figure) for peer in PEERS}))
        without, with_ = (results.median(peer, case, "rps") for peer in ("ours_without_capture", "ours"))
        if with_ and without:
            found.append(_head("capture_rps_ratio", case) | {"ours": round(with_ / without, 3)})
    return found


def gap_lines(results: Results, case: Case) -> list[dict[str, Any]]:
    """What a streamed token waits longer than on a direct connection."""
    return [
        _line(f"added_gap_p{q}_ms", case, {peer: results.added(peer, case, f"gap_p{q}_ms") for peer in PEERS})
        for q in (50, 99)
    ]


def _line(figure: str, case: Case, values: dict[str, float | None]) -> dict[str, Any]:
    shown = {peer: None if value is None else round(value, 3) for peer, value in values.items()}
    ours, litellm = values["ours"], values["litellm"]
    ratio = None if ours is None or not litellm else round(ours / litellm, 4)
    return _head(figure, case) | shown | {"ratio": ratio}


def _head(figure: str, case: Case) -> dict[str, Any]:
    return {"bench": "gateway", "figure": figure, "connections": case.connections, "stream": case.stream}
