"""Table rows as generations."""

from __future__ import annotations

from typing import Any

from shared.contracts.generation import Generation
from shared.db.models import GenerationRow


def from_row(row: GenerationRow) -> Generation:
    """The generation that `copy_row` stored; a stop token's id comes back as a string."""
    values = {name: getattr(row, name) for name in Generation.model_fields}
    return Generation.model_validate(values)


def stop_string(stop_reason: str | None, sampling: dict[str, Any]) -> str | None:
    """The stop string that ended a generation; None where it was an end token, whose id vLLM gives as a number."""
    return stop_reason if stop_reason is not None and stop_reason in sampling.get("stop", ()) else None
