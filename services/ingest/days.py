"""Conditions by which a query looks into few days' parts of `generations`, and says the same as without them.

A generation's id tells when its request came (`shared.contracts.ids`), which is `created_at`; ids that do not tell it
come before all others, and are always looked at as well.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, literal, or_

from shared.contracts.ids import TIMED

SLACK = timedelta(minutes=1)
_CHOICES = "-9999"


def made_since(generation_id: Any, moment: Any) -> ColumnElement[bool]:
    """Of what was created then or later. `moment`: a time, or an expression of one."""
    at = literal(moment - SLACK) if isinstance(moment, datetime) else moment - SLACK
    milliseconds = cast(func.floor(func.extract("epoch", at) * 1000), BigInteger)
    first = literal(TIMED).op("||")(func.lpad(func.to_hex(milliseconds), 12, "0"))
    return or_(generation_id < literal(TIMED), generation_id >= first)


def of_requests(generation_id: Any, request_ids: Collection[str]) -> ColumnElement[bool]:
    """Of what has one of these requests' ids, and a little more: all between the first and the last."""
    return and_(generation_id >= min(request_ids), generation_id <= max(request_ids) + _CHOICES)
