"""Candidates with defaults."""

from __future__ import annotations

from services.trainer.warmstart.rewards.protocol import Candidate


def candidate(completion: str = "1", **changes: str) -> Candidate:
    """A hole in `x = 1`."""
    fields = {
        "prompt_prefix": "x = ",
        "prompt_suffix": "\n",
        "reference": "1",
        "language": "python",
        "path": "pkg/x.py",
    }
    return Candidate(completion=completion, **(fields | changes))
