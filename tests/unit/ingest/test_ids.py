"""Ids are in the order of their time, and each day's are one range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.partitions import Part
from shared.contracts.ids import TIMED, first_id, new_request_id

moments = st.datetimes(datetime(2020, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC))


@given(moments, moments)
def test_ids_are_in_the_order_of_their_time(one: datetime, other: datetime) -> None:
    if one + timedelta(milliseconds=1) <= other:
        assert new_request_id(one) < new_request_id(other)
    assert first_id(one) <= new_request_id(one)
    assert len(new_request_id(one)) == len("cmpl-") + 33


@given(moments)
def test_an_id_belongs_to_its_day(moment: datetime) -> None:
    part = Part(moment.replace(hour=0, minute=0, second=0, microsecond=0))
    first, end = part.ids
    assert first <= new_request_id(moment) < end
    assert not first <= new_request_id(part.end) < end


def test_ids_of_before_come_before_all_others() -> None:
    assert max("cmpl-" + digit for digit in "0123456789abcdef") < TIMED


def test_no_two_are_the_same() -> None:
    now = datetime.now(UTC)
    assert len({new_request_id(now) for _ in range(1000)}) == 1000
