"""What the publisher says about a replica while it changes the replica's weights.

Produced by the publisher, consumed by every gateway, over Redis: the key `draining_key(url)` holds the last notice and
expires with it, so that a gateway that starts or reconnects knows; the channel CHANNEL_REPLICAS carries each notice to
those that listen. Both are hints: a gateway that hears nothing sends requests to a held replica, where they wait.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

CHANNEL_REPLICAS: Final = "tabwise:replicas"
"""Payload: `ReplicaNotice` as JSON."""


class ReplicaNotice(BaseModel):
    """`draining`: give it no new requests until `until`, or until it is `serving` again."""

    model_config = ConfigDict(frozen=True)

    url: str
    """Base URL as `normal_url` writes it."""
    state: Literal["draining", "serving"]
    until: AwareDatetime
    """When a `draining` that nobody took back ends; for `serving`, when it was said."""


def normal_url(url: str) -> str:
    """The one way of writing a replica's base URL, by which gateway and publisher mean the same replica."""
    return url.strip().rstrip("/")


def draining_key(url: str) -> str:
    """The Redis key of a replica's notice."""
    return f"tabwise:draining:{normal_url(url)}"
