"""Ids of requests: `cmpl-t`, the time in milliseconds, then chance. Made by the gateway; the ledger keeps them by day.

Ids are in the order of their time, so a table that is parted by id is parted by time, an id leads to its one part, and
it is unique in all of them. Ids of versions before this one are `cmpl-` and 32 hexadecimal digits: before all others.
"""

from __future__ import annotations

import uuid
from datetime import datetime

TIMED = "cmpl-t"
"""Begins ids that tell their time."""
_TIME_DIGITS, _CHANCE_DIGITS = 12, 20


def new_request_id(now: datetime) -> str:
    """A new id, 80 bits of which (6 of them fixed) are chance."""
    return f"{first_id(now)}{uuid.uuid4().hex[-_CHANCE_DIGITS:]}"


def first_id(moment: datetime) -> str:
    """No id of a request at that moment, or later, comes before this."""
    return f"{TIMED}{int(moment.timestamp() * 1000):0{_TIME_DIGITS}x}"
