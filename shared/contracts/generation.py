"""What the engine sampled for one choice of one request: the only thing that is ever trained on.

Produced by the gateway, consumed by ingest's recorder.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

FinishReason = Literal["stop", "length", "abort", "error"]


class Sampling(BaseModel):
    """How the tokens were drawn. The learner needs it to recompute the same distribution."""

    model_config = ConfigDict(frozen=True)

    temperature: float = Field(ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = -1
    max_tokens: int = Field(gt=0)
    seed: int | None = None
    stop: tuple[str, ...] = ()

    @property
    def full_support(self) -> bool:
        """Whether no token was cut from the distribution, so that importance weights are defined for all of them."""
        return self.top_p == 1.0 and self.top_k in (-1, 0) and self.temperature > 0


class PolicySpan(BaseModel):
    """Tokens [start, end) of a generation were sampled by policy `version`."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class Generation(BaseModel):
    """One choice of one completion request, exactly as sampled. T = number of sampled tokens.

    `logprobs` are the behaviour policy's, after temperature (`processed_logprobs`), natural logarithm.
    `text_offsets[t]` is the number of characters of text that the tokens before t decode to; it may run past
    `len(text)`, because the tokens of a matched stop string (and the end token) are sampled but not in the text.
    """

    model_config = ConfigDict(frozen=True)

    generation_id: str
    """Primary key; `request_id` for choice 0, `request_id-N` for choice N."""
    request_id: str
    """The `id` that the client received, `cmpl-…`."""
    choice_index: int = 0
    created_at: AwareDatetime
    """When the request arrived."""
    key_id: str
    project_id: str
    protocol: str
    client_model: str
    replica: str
    prompt: str
    prompt_token_ids: list[int]
    text: str
    token_ids: list[int]
    logprobs: list[float]
    text_offsets: list[int]
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    sampling: Sampling
    policy_spans: list[PolicySpan]
    client_gone: bool = False
    """The client hung up before the end: the text is what had been sampled until then."""
    first_token_s: float | None = None
    total_s: float
    untrainable: str | None = None
    """Why it cannot be trained on (`no_token_ids`, `bad_logprobs`, `truncated_sampling`, …), else None."""

    @model_validator(mode="after")
    def _same_length(self) -> Generation:
        lengths = {len(self.token_ids), len(self.logprobs), len(self.text_offsets)}
        if self.untrainable is None and len(lengths) != 1:
            raise ValueError("token_ids, logprobs and text_offsets must have the same length")
        return self

    @property
    def policy_version(self) -> int:
        """The oldest policy that sampled any of the tokens; base version where nothing is known."""
        return min((span.version for span in self.policy_spans), default=0)

    @property
    def finished_at_s(self) -> float:
        """Seconds since the epoch at which the last token was there."""
        return _epoch(self.created_at) + self.total_s


def _epoch(moment: datetime) -> float:
    return moment.timestamp()
