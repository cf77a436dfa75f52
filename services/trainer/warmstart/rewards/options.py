"""The base of a reward's options: checked by pydantic, nothing unknown allowed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Subclass it, and build it with `MyOptions.model_validate(options)`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoOptions(Options):
    """Of a reward that has none."""
