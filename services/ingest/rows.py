"""Generations as table rows and back."""

from __future__ import annotations

import hashlib
from typing import Any

from shared.contracts.generation import Generation
from shared.db.models import GenerationRow


def to_row(generation: Generation) -> dict[str, Any]:
    """Column values of a generation."""
    values = generation.model_dump(exclude={"sampling", "policy_spans", "stop_reason"})
    return values | {
        "prompt_sha256": hashlib.sha256(generation.prompt.encode()).digest(),
        "sampling": generation.sampling.model_dump(mode="json"),
        "policy_spans": [span.model_dump() for span in generation.policy_spans],
        "policy_version": generation.policy_version,
        "stop_reason": None if generation.stop_reason is None else str(generation.stop_reason),
    }


def from_row(row: GenerationRow) -> Generation:
    """The generation that `to_row` stored; a stop token's id comes back as a string."""
    values = {name: getattr(row, name) for name in Generation.model_fields}
    return Generation.model_validate(values)


def stop_string(stop_reason: str | None, sampling: dict[str, Any]) -> str | None:
    """The stop string that ended a generation; None where it was an end token, whose id vLLM gives as a number."""
    return stop_reason if stop_reason is not None and stop_reason in sampling.get("stop", ()) else None
