"""One labelled completion, ready to be trained on. Produced by ingest, consumed by the trainer.

It carries everything that the trainer needs, so that the trainer asks no other service for text or tokens.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from shared.contracts.generation import Sampling

Label = Literal["accepted", "rejected"]


class RewardSpec(BaseModel):
    """The reward as settings, so that siblings are scored with the numbers that the shown completion got.

    `sibling reward = sibling_weight * (rejected + (accepted - rejected) * similarity ** similarity_power)`
    for a sibling whose similarity (0 to 1) to the known text is `similarity`; an empty sibling gets `silence`.
    """

    model_config = ConfigDict(frozen=True)

    accepted: float = 0.75
    rejected: float = -0.25
    silence: float = 0.0
    sibling_weight: float = Field(default=0.9, gt=0, le=1)
    similarity_power: float = Field(default=4.0, gt=0)


class Sample(BaseModel):
    """A sampled completion. T = number of sampled tokens; token ids and logprobs are the engine's own."""

    model_config = ConfigDict(frozen=True)

    text: str
    token_ids: list[int]
    logprobs: list[float]
    credited_tokens: int = Field(ge=0)
    """Only tokens [0, credited_tokens) get a gradient: those behind the displayed text."""
    policy_version: int = Field(ge=0)


class Reference(BaseModel):
    """What is known to be right at this place."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["accepted", "settled", "edited"]
    """`accepted`: the developer took it. `settled`: what the developer typed there instead, seen in a later request.
    `edited`: what stands there in the end, as the client told."""
    text: str


class Experience(BaseModel):
    """One resolved display of a completion, with its reward and what is known about the right text."""

    model_config = ConfigDict(frozen=True)

    experience_id: str
    generation_id: str
    project_id: str
    key_id: str
    language: str = "unknown"
    feedback_at: AwareDatetime
    """When the first event about this display was received."""
    prompt: str
    prompt_token_ids: list[int]
    sampling: Sampling
    shown: Sample
    shown_text: str
    """What the editor displayed: a prefix or trim of `shown.text`. Of a partial accept what was accepted."""
    label: Label
    accepted_part: Literal["line", "word", "chars"] | None = None
    """Only this much (`chars`: its first characters) was accepted, so nothing is known of the rest.
    None: all of it, or nothing."""
    reward: float = Field(allow_inf_nan=False)
    reference: Reference | None = None
    siblings: list[Sample] = []
    """Other choices of the same request (`n` > 1), if there were any."""
    reward_spec: RewardSpec = RewardSpec()
