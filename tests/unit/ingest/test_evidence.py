"""Evidence cannot hold figures that cannot be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from services.ingest.evidence import Evidence


def test_only_the_verdict_must_be_known() -> None:
    evidence = Evidence("shown")
    assert evidence.retention == {}
    assert all(
        getattr(evidence, name) is None
        for name in ("part", "explicit", "shown_chars", "reversed_", "typed_out", "edited", "rating", "superseded")
    )


@pytest.mark.parametrize("figures", [{"edited": 0.0}, {"edited": 1}, {"rating": -1.0}, {"retention": {30: 1.0}}])
def test_edges_are_allowed(figures: dict[str, Any]) -> None:
    assert Evidence("accepted", **figures)


@pytest.mark.parametrize(
    "figures",
    [
        {"edited": -0.1},
        {"edited": math.nan},
        {"rating": 1.1},
        {"rating": math.inf},
        {"retention": {30: 1.01}},
        {"retention": {600: math.nan}},
        {"shown_chars": -1},
    ],
)
def test_impossible_figures_are_refused(figures: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Evidence("accepted", **figures)
