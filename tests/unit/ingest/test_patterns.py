"""Which patterns nobody could have made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.patterns import Limits, Pattern, Rule, broken_rule, evidence

LIMITS = Limits()
PERSON = Pattern(key_id="k", displays=400, accepted=120, fast=0, early=0, most_per_minute=6)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, None),
        ({"displays": 50, "accepted": 50, "fast": 50}, "too_fast"),
        ({"displays": 49, "accepted": 49, "fast": 49}, None),
        ({"displays": 100, "accepted": 95, "fast": 95}, "too_fast"),
        ({"displays": 100, "accepted": 100, "fast": 94}, None),
        ({"accepted": 400}, None),
        ({"most_per_minute": 600}, None),
        ({"most_per_minute": 601}, "too_many"),
        ({"early": 9}, None),
        ({"early": 10}, "before_the_end"),
    ],
)
def test_the_rules(changes: dict[str, Any], rule: Rule | None) -> None:
    assert broken_rule(replace(PERSON, **changes), LIMITS) == rule


@given(st.integers(0, 5000), st.data())
def test_whoever_rejects_six_of_a_hundred_is_never_too_fast(displays: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, int(displays * 0.94)))
    pattern = Pattern("k", displays, accepted, fast=accepted, early=0, most_per_minute=0)
    assert broken_rule(pattern, LIMITS) is None


def test_evidence_tells_figures_and_limits_alone() -> None:
    shown = evidence(PERSON, LIMITS)
    assert (shown["displays"], shown["limit_fast_ms"]) == (400, 50.0)
    assert "key_id" not in shown
