"""What the trainer and its learner process say to each other. Torch-free, so that both sides can import it.

One connection (`multiprocessing.connection`, bytes only), one JSON message a line of work: the trainer sends a
`TrainRequest`, the learner answers with one `StepDone` per mini-batch and then one `RoundDone`, or with `RoundFailed`.
A `SampleRequest` is answered with `Sampled`, or with `RoundFailed`: warm start and benchmarks draw completions from the
very weights that are trained; online the engine samples.
The learner keeps the model, optimiser and reference in memory between requests. A request names the checkpoint that it
builds on; where the learner's memory is anything else (it was restarted, or an earlier round was not committed), it
loads that checkpoint first. Shapes: G samples of a group, T tokens of a sample, P tokens of a prompt.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

LossName = Literal["clip", "clip_higher"]
ImportanceName = Literal[
    "none", "token_truncate", "sequence_truncate", "geometric_truncate", "sequence_mask", "geometric_mask"
]
KlEstimatorName = Literal["k1", "k2", "k3"]
AggregationName = Literal["token_mean", "sequence_mean", "dr_grpo"]
AttentionName = Literal["auto", "dense", "prefix", "flex"]
OffloadName = Literal["none", "optimizer", "all"]
TrackerName = Literal["tensorboard", "wandb", "mlflow"]
"""What waits in the host's memory between uses: nothing; the optimiser's state and its step; the weights too."""

NON_FINITE: Final = "non_finite"
LOGPROB_GAP: Final = "logprob_gap"
Skipped = Literal["non_finite", "logprob_gap"]
"""Why a step changed nothing: its loss or gradient was not finite; engine and learner disagree about logprobs."""

LEARNER_CONFIG: Final = "TABWISE_LEARNER_CONFIG"
"""Environment variable: `LearnerConfig` as JSON."""
LEARNER_ADDRESS: Final = "TABWISE_LEARNER_ADDRESS"
"""Environment variable: path of the Unix socket that the learner's `multiprocessing.connection.Client` connects to."""
LEARNER_AUTHKEY: Final = "TABWISE_LEARNER_AUTHKEY"
"""Environment variable: the connection's authkey in hexadecimal (`bytes.fromhex`)."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")  # a skipped step's loss may be NaN


class TrainSample(_Message):
    """One completion. Only tokens [0, credited_tokens) are in the loss."""

    token_ids: list[int]
    """Length T ≥ credited_tokens; the learner never sees what the engine did not sample."""
    behaviour_logprobs: list[float]
    """Length T, natural log, after temperature."""
    credited_tokens: int = Field(gt=0)
    advantage: float = Field(allow_inf_nan=False)


class TrainGroup(_Message):
    """Samples that share one prompt."""

    group_id: str
    prompt_token_ids: list[int]
    temperature: float = Field(gt=0)
    samples: list[TrainSample] = Field(min_length=1)
    off_policy: bool = False
    """Sampled more than `max_staleness` versions ago: its importance weights are capped at `stale_importance_cap`, and
    it does not count in the measured gap between engine and learner."""


class CheckpointRef(_Message):
    """A committed checkpoint: version 0 is the base model (`folder` None)."""

    version: int = Field(ge=0)
    lineage: str
    """Round id that committed it; `base` for version 0. Two attempts at one version differ in it."""
    folder: str | None
    """Absolute path of `vNNNNNN/`, None for the base model."""


class TrainRequest(_Message):
    """Train these mini-batches, one optimiser step each, on top of `base`, then write `target` and answer."""

    kind: Literal["train"] = "train"
    base: CheckpointRef
    target: CheckpointRef
    minibatches: list[list[TrainGroup]]
    scalars: dict[str, float] = {}
    """Figures of the trainer's own for the trackers (reward, staleness, …), written at the target version."""


class SampleRequest(_Message):
    """Draw `n` completions of each prompt from the policy `base`. Changes nothing but which policy is in memory."""

    kind: Literal["sample"] = "sample"
    base: CheckpointRef
    prompts: list[str] | list[list[int]] = Field(min_length=1)
    """Text, or token ids. Text is tokenised as the engine does it."""
    n: int = Field(default=1, ge=1)
    max_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """0: the most probable token each time, with its logprob at temperature 1."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """A completion ends where its text first contains one of these; besides always at the model's end tokens and at
    any other special token (FIM marks, for one)."""
    seed: int | None = Field(default=None, ge=0)
    """The same seed, prompts and weights give the same samples; None: always others."""


class SampledCompletion(_Message):
    """T sampled tokens, the token that ended it included, as the engine's generations have it."""

    token_ids: list[int]
    logprobs: list[float]
    """Length T, natural log, after temperature."""
    text: str
    """Without special tokens and without the stop string."""
    text_offsets: list[int]
    """Length T: characters of text before token t; may run past `len(text)` (`shared.contracts.generation`)."""
    finish: Literal["stop", "length"]
    stop_reason: str | None = None
    """The stop string; None: an end token, or `length`."""


class SampledGroup(_Message):
    """Of one prompt."""

    prompt_token_ids: list[int]
    samples: list[SampledCompletion]
    """`n` of them."""


class StepDone(_Message):
    """One optimiser step. Means are over credited tokens. All figures are 0 where the step was not finite."""

    kind: Literal["step"] = "step"
    minibatch: int
    groups: int
    tokens: int
    loss: float
    """As aggregated, KL term included."""
    kl: float
    """Mean of the configured estimate against the reference policy, nats."""
    grad_norm: float
    clip_share: float
    """Share of tokens whose ratio was clipped."""
    importance_mean: float
    importance_max: float
    """Of exp(learner − behaviour) before the cap."""
    effective_sample_share: float
    """(Σw)² / (n Σw²), 1 when all importance weights are equal."""
    logprob_gap_mean: float
    """Mean |learner − behaviour| logprob, nats; off-policy groups apart."""
    logprob_gap_max: float = 0.0
    """Of one token."""
    masked_share: float = 0.0
    """Share of tokens whose importance weight is 0."""
    seconds: float
    skipped: Skipped | None = None


class RoundDone(_Message):
    """`target.folder` exists, whole: Hugging Face files, `probe.json`, and the state to resume from."""

    kind: Literal["done"] = "done"
    target: CheckpointRef
    seconds: float
    peak_rss_mb: float
    tracking_lost: dict[str, int] = {}
    """Entries that experiment trackers lost since the last round, by tracker."""


class Sampled(_Message):
    """One group for each prompt, in order."""

    kind: Literal["sampled"] = "sampled"
    groups: list[SampledGroup]
    seconds: float


class RoundFailed(_Message):
    """Nothing was written."""

    kind: Literal["failed"] = "failed"
    error: str
    leaving: bool = False
    """The learner ends: with several ranks an error leaves some of them waiting for others. Else it stays up."""


class LearnerReady(_Message):
    """First message after connecting: the model is loaded."""

    kind: Literal["ready"] = "ready"
    ranks: int
    parameters: int
    device: str


AnyReply = StepDone | RoundDone | RoundFailed | LearnerReady | Sampled
REPLY: TypeAdapter[AnyReply] = TypeAdapter(Annotated[AnyReply, Field(discriminator="kind")])
AnyRequest = TrainRequest | SampleRequest
REQUEST: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="kind")])


class LearnerConfig(_Message):
    """How the learner is built; passed as JSON in the environment variable `TABWISE_LEARNER_CONFIG`."""

    model_path: str
    reference_path: str | None = None
    """What the KL term holds on to; None: `model_path`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    learning_rate: float = 5e-5
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    kl_coef: float = 0.01
    clip_low: float = 0.2
    clip_high: float = 0.28
    importance_cap: float = 2.0
    loss: LossName = "clip_higher"
    importance: ImportanceName = "token_truncate"
    kl_estimator: KlEstimatorName = "k3"
    aggregation: AggregationName = "token_mean"
    max_completion_tokens: int = 64
    """The constant length of `aggregation="dr_grpo"`."""
    stale_importance_cap: float = 1.0
    max_logprob_gap: float = 0.5
    """A mini-batch whose `logprob_gap_mean` is beyond this is not trained; infinite: any is."""
    zero_stage: int = Field(default=2, ge=0, le=3)
    max_row_tokens: int = 4096
    """Token budget of one packed row: prompts plus all of their samples."""
    attention: AttentionName = "auto"
    """How packed groups attend; `auto`: `flex` on a GPU, else `prefix`."""
    gradient_checkpointing: bool = False
    adapter: Literal["none", "lora"] = "none"
    """`none`: all weights are trained."""
    lora_rank: int = 16
    lora_alpha: float = 32.0
    lora_targets: str = "all-linear"
    """Or names of linear layers, separated by commas."""
    offload: OffloadName = "none"
    seed: int = 0
    trackers: tuple[TrackerName, ...] = ("tensorboard",)
    tensorboard_dir: str | None = None
    run_name: str | None = None
    """None: the time of the start."""
    run_dir: str = "var/runs"
    threads: int = 0
    """CPU threads per rank; 0: torch decides."""
