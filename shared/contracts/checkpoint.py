"""A checkpoint folder on disk, and the promises about it.

The learner writes `v000018.tmp/`, fills it and renames it to `v000018/`: a folder without `.tmp` is whole.
Inside: Hugging Face files (`config.json`, `model*.safetensors`, tokenizer), `probe.json`, and the learner's own
state under `deepspeed/`, which is never uploaded for serving.
"""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Probe(BaseModel):
    """A fixed token sequence and its logprobs under the checkpoint's policy, as the learner computed them.

    `logprobs[t]` is log p(token_ids[t + 1] | token_ids[: t + 1]) at temperature 1, so its length is one less.
    The publisher asks the engine for the same numbers (`prompt_logprobs`) after each load.
    """

    model_config = ConfigDict(frozen=True)

    version: int = Field(ge=0)
    token_ids: list[int]
    logprobs: list[float]


class ManifestFile(BaseModel):
    """One uploaded file."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """What an uploaded checkpoint consists of. Uploaded last: a checkpoint without a manifest is not there."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(ge=0)
    parent: int = Field(ge=0)
    created_at: AwareDatetime
    files: list[ManifestFile]
    probe: Probe
