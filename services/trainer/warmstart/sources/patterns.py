"""`include` and `exclude`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from services.trainer.warmstart.filters import looked_at


def wanted(path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a path is looked at, matches one of `include` and none of `exclude` (`*` also matches `/`)."""
    if not looked_at(path) or any(fnmatchcase(path, pattern) for pattern in exclude):
        return False
    return any(fnmatchcase(path, pattern) for pattern in include)
