"""Experience for tests: one character is one token, ids are code points below 128."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from shared.contracts.experience import Experience, Reference, Sample
from shared.contracts.generation import Sampling

EOS = 0


def sample(text: str, *, credited: int | None = None, version: int = 0, logprob: float = -0.5) -> Sample:
    """A completion that ended with the end token, all of it credited."""
    token_ids = [*(ord(char) % 128 for char in text), EOS]
    return Sample(
        text=text,
        token_ids=token_ids,
        logprobs=[logprob] * len(token_ids),
        credited_tokens=len(token_ids) if credited is None else credited,
        policy_version=version,
    )


def experience(text: str = "return total", *, accepted: bool = True, **changes: Any) -> Experience:
    """One that was shown whole. `reference`: a settled text."""
    settled = changes.pop("reference", None)
    version = changes.pop("version", 0)
    fields: dict[str, Any] = {
        "experience_id": str(uuid.uuid4()),
        "generation_id": "cmpl-1",
        "project_id": "acme",
        "key_id": "key-1",
        "language": "python",
        "feedback_at": datetime(2026, 11, 20, 12, tzinfo=UTC),
        "prompt": "def f():",
        "prompt_token_ids": [ord(char) for char in "def f():"],
        "sampling": Sampling(temperature=0.8, max_tokens=16, stop=("```",)),
        "shown": sample(text, version=version),
        "shown_text": text,
        "label": "accepted" if accepted else "rejected",
        "reward": 0.75 if accepted else -0.25,
        "reference": Reference(kind="settled", text=settled) if settled is not None else None,
    }
    return Experience.model_validate(fields | changes)
