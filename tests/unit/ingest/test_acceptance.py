"""Acceptance figures: the interval, the periods, the groupings, and who is called what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.acceptance import (
    AcceptanceGroup,
    Counts,
    cells,
    dimensions_of,
    figures,
    header,
    moment,
    period,
    pseudonym,
    wilson,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
COUNTS = Counts(
    requested=40,
    requests_shown=10,
    shown=12,
    accepted=2,
    partially_accepted=1,
    rejected=4,
    rewards=1.5,
    rewarded=6,
    accepted_chars=30,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_published_values(successes: int, trials: int, low: float, high: float) -> None:
    """The last three are Newcombe's examples (1998, Statistics in Medicine 17:857-872, table I, method 3)."""
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share_and_mirrors(pair: tuple[int, int]) -> None:
    successes, trials = pair
    low, high = wilson(successes, trials) or (1.0, 0.0)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    mirrored = wilson(trials - successes, trials) or (0.0, 0.0)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_figures() -> None:
    group = figures({"project": "team"}, COUNTS)
    assert (group.share_shown, group.acceptance_rate, group.undecided, group.mean_reward) == (0.25, 0.25, 5, 0.25)
    assert (group.rate_low, group.rate_high) == wilson(3, 12)


def test_nothing_counted_is_no_rate() -> None:
    group = figures({}, Counts(0, 0, 0, 0, 0, 0, 0.0, 0, 0))
    unknown = (group.share_shown, group.acceptance_rate, group.rate_low, group.rate_high, group.mean_reward)
    assert unknown == (None,) * 5


def test_by_language_requests_are_not_known() -> None:
    group = figures({"language": "go"}, COUNTS)
    assert (group.requested, group.share_shown, group.shown) == (None, None, 12)


def test_a_table_has_a_cell_for_each_heading() -> None:
    group: AcceptanceGroup = figures({"version": 3, "project": "team"}, COUNTS)
    columns = header(["project", "version"])
    row = dict(zip(columns, cells(group, ["project", "version"]), strict=True))
    assert (row["project"], row["version"], row["shown"], row["accepted_chars"]) == ("team", 3, 12, 30)


def test_dimensions() -> None:
    assert dimensions_of(" project, version ", None) == ("project", "version")
    assert dimensions_of("", None) == ()
    assert dimensions_of("project", "hour") == ("time", "project")
    assert dimensions_of("project,time", "day") == ("project", "time")
    for wrong in ("colour", "project,project", "project;version"):
        with pytest.raises(ValueError, match="must be some of project"):
            dimensions_of(wrong, None)


def test_moments_and_periods() -> None:
    assert moment("2026-11-01", NOW) == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("2026-11-01T12:00:00+02:00", NOW) == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert moment("90m", NOW) == NOW - timedelta(minutes=90)
    assert period("7d", None, NOW) == (NOW - timedelta(days=7), NOW)
    wrong: tuple[str, str | None]
    for wrong, field in ((("x", None), "since"), (("7d", "yesterday"), "until"), (("1h", "2h"), "until"),
                         (("999999d", None), "since"), (("400d", None), "since")):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{field}: "):
            period(wrong[0], wrong[1], NOW)


def test_a_pseudonym_is_stable_and_not_the_key() -> None:
    assert pseudonym("key-1") == pseudonym("key-1") != pseudonym("key-2")
    assert "key-1" not in pseudonym("key-1")
