"""Errors named by what the caller should do.

TabwiseError
├── SettingsError      the operator must change a setting; the message names it
├── TemporaryError     try again later: the other side is away
└── InvalidMessage     never try again: dead-letter it
"""

from __future__ import annotations


class TabwiseError(Exception):
    """Base of the project's own errors. One string argument, so that it survives pickling (Celery needs it)."""


class SettingsError(TabwiseError):
    """A setting is wrong; the message is one sentence for the operator and names the setting to change."""


class TemporaryError(TabwiseError):
    """The other side is away or overloaded; the same call may succeed later."""


class InvalidMessage(TabwiseError):
    """A message that can never be processed; put it aside with this reason."""
