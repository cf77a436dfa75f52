"""Settings of the trainer and of the learner that it starts. The defaults suit the small model on two CPU cores."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from services.trainer.learner_api import (
    AggregationName,
    AttentionName,
    ImportanceName,
    KlEstimatorName,
    LearnerConfig,
    LossName,
    OffloadName,
    TrackerName,
)
from services.trainer.learner_nodes import Nodes, read_hostfile
from shared.kit.errors import SettingsError
from shared.kit.settings import ServiceSettings

AdvantageName = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "tracker", "raw"]


def _trackers(value: Any) -> Any:
    names = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and (unknown := set(names) - set(get_args(TrackerName))):
        raise ValueError(f"there is no tracker {min(unknown)!r}; known are {', '.join(get_args(TrackerName))}")
    return names


class TrainerSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Where the experience stream is."""
    broker_url: str = "redis://127.0.0.1:6379/1"
    """Celery's broker."""
    engine_urls: str = "http://127.0.0.1:8000"
    """Replicas that siblings are drawn from, separated by commas."""
    served_model_name: str = "tabwise"
    model_path: str = "models/tabwise-small"
    """The base model: a folder, or a repository name such as `Qwen/Qwen2.5-Coder-1.5B`."""
    reference_path: str | None = None
    """The model that the KL term holds on to: a folder or a repository name, such as a warm start's `final`. None: the
    base model."""
    checkpoint_root: str = "var/checkpoints"
    """Where the learner commits `vNNNNNN/`."""
    keep_checkpoints: int = Field(default=5, ge=1)
    """Newest committed folders that are kept; older ones go once the publisher has uploaded theirs or a newer one."""
    metrics_host: str = "127.0.0.1"
    trainer_metrics_port: int = Field(default=9101, ge=1, le=65535)

    trainer_tick_s: float = Field(default=1.0, gt=0)
    """How often it looks for work."""
    trainer_consumer: str = "trainer"
    """Name in the consumer group. The same after a restart, so that it finds what it had claimed."""
    minibatch_size: int = Field(default=16, ge=1)
    """Groups per optimiser step."""
    minibatches_per_checkpoint: int = Field(default=1, ge=1)
    max_wait_s: float = Field(default=30.0, ge=0)
    """A smaller mini-batch is trained once experience has waited this long."""
    max_key_share: float = Field(default=0.5, gt=0, le=1)
    """Of a mini-batch's places one key gets at most this share, while experience of other keys waits too."""
    key_share_lookahead: int = Field(default=256, ge=1)
    """How many waiting entries are looked at for that."""
    claim_idle_s: float = Field(default=300.0, gt=0)
    """Entries that another consumer has held for longer are taken over."""
    max_staleness: int = Field(default=8, ge=0)
    """Versions that experience may be behind the newest committed one."""
    stale: Literal["skip", "cap"] = "skip"
    """What becomes of older experience: put aside, or trained with importance weights of at most
    `stale_importance_cap`."""
    stale_importance_cap: float = Field(default=1.0, gt=0)
    max_failures: int = Field(default=8, ge=1)
    """Rounds that may fail in a row on the same experience, each half as large, before it is put aside as dead."""
    max_backoff_s: float = Field(default=60.0, ge=0)
    """Longest pause after failed rounds; it doubles from one tick on."""
    stop_grace_s: float = Field(default=20.0, ge=0)
    """On SIGTERM a round that is in the learner gets this long to finish, then it is abandoned."""

    group_size: int = Field(default=8, ge=1)
    """Completions per prompt, the shown one included; 1: no siblings."""
    sibling_temperature: float | None = Field(default=None, gt=0)
    """None: the temperature of the shown completion."""
    sibling_timeout_s: float = Field(default=30.0, gt=0)
    sibling_concurrency: int = Field(default=8, ge=1)
    """Prompts that are sampled at once over all replicas."""

    advantage: AdvantageName = "grpo"
    tracker_decay: float = Field(default=0.98, gt=0, le=1)
    """What remains of the value tracker's weight per new experience: 0.98 remembers about 50."""

    learner_module: str = "services.trainer.learner"
    """Started with `python -m`; anything that speaks `learner_api` will do."""
    learner_ranks: int = Field(default=1, ge=1)
    """Processes of the learner; more than one is started with torchrun."""
    learner_hostfile: str | None = None
    """Ranks on several nodes: a file with a line `host slots=N` for each, the trainer's own first. It says how many
    there are: leave `learner_ranks` alone. `checkpoint_root`, the model and the program have the same path on all."""
    learner_launcher: str = "ssh -o BatchMode=yes -o ServerAliveInterval=5 {host}"
    """Command that runs its last argument in a shell on a host of that file."""
    learner_port: int = Field(default=0, ge=0, le=65535)
    """Where the nodes meet, on the first host; 0: any free one."""
    learner_startup_s: float = Field(default=180.0, gt=0)
    learner_timeout_s: float = Field(default=600.0, gt=0)
    """Longest silence of the learner during a round."""
    learner_dtype: Literal["float32", "bfloat16"] = "float32"
    learner_threads: int = Field(default=1, ge=0)
    """CPU threads per rank; 0: torch decides."""
    learner_seed: int = 0
    learning_rate: float = Field(default=1e-4, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    loss: LossName = "clip_higher"
    """`clip`: both bounds are `clip_low`. The formulas of all of these: docs/learning.md."""
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.28, gt=0)
    importance: ImportanceName = "token_truncate"
    """How it is made good for that the engine sampled, and not the learner."""
    importance_cap: float = Field(default=2.0, ge=1)
    kl_coef: float = Field(default=0.01, ge=0)
    kl_estimator: KlEstimatorName = "k3"
    aggregation: AggregationName = "token_mean"
    max_completion_tokens: int = Field(default=64, ge=1)
    """The gateway's limit; here the constant length of `aggregation=dr_grpo`."""
    max_logprob_gap: float = Field(default=0.5, gt=0)
    """Nats a token: a mini-batch in which engine and learner are further apart on average is not trained; `inf`: any
    is. In the demo 0.002 is usual, and 0.02 was the most."""
    zero_stage: int = Field(default=2, ge=0, le=3)
    max_row_tokens: int = Field(default=4096, ge=64)
    """Token budget of one packed row; a prompt that does not fit with one completion is not trained on."""
    attention: AttentionName = "auto"
    """How packed groups attend: `dense`, `prefix`, `flex` (GPU); `auto`: `flex` on a GPU, else `prefix`."""
    gradient_checkpointing: bool = False
    """Activations are computed again in the backward pass instead of kept: less memory, more time."""
    adapter: Literal["none", "lora"] = "none"
    """`lora` trains a low-rank adapter (peft) instead of all weights; the reference policy is then the policy without
    it. A lineage of checkpoints keeps to one setting."""
    lora_rank: int = Field(default=16, ge=1)
    lora_alpha: float = Field(default=32.0, gt=0)
    """The adapter counts alpha / rank times."""
    lora_targets: str = "all-linear"
    """Or names of linear layers, separated by commas: `q_proj,v_proj`."""
    offload: OffloadName = "none"
    """To the host's memory: `optimizer` (from `zero_stage` 1 on) or `all`, the weights too (`zero_stage` 3)."""
    trackers: Annotated[tuple[TrackerName, ...], NoDecode, BeforeValidator(_trackers)] = ("tensorboard",)
    """Where the learner's figures are drawn: `tensorboard,wandb,mlflow`, or some of them, or none."""
    tensorboard_dir: str | None = "var/tensorboard"
    run_name: str | None = None
    """Of the run in Weights & Biases and MLflow; under the same name the same run goes on. None: the time of the
    learner's start, a new run each time."""
    run_dir: str = "var/runs"
    """What those two keep on disk."""

    @property
    def engines(self) -> list[str]:
        """Base URLs of the replicas."""
        return [url.strip().rstrip("/") for url in self.engine_urls.split(",") if url.strip()]

    @property
    def round_size(self) -> int:
        """Groups of one checkpoint at most."""
        return self.minibatch_size * self.minibatches_per_checkpoint

    def learner_nodes(self) -> Nodes | None:
        """None: all ranks are on this machine. Raises `SettingsError`."""
        if self.learner_hostfile is None:
            return None
        nodes = read_hostfile(self.learner_hostfile, self.learner_launcher, self.learner_port)
        if "learner_ranks" in self.model_fields_set and self.learner_ranks != nodes.ranks:
            raise SettingsError(
                f"TABWISE_LEARNER_RANKS={self.learner_ranks}, but TABWISE_LEARNER_HOSTFILE has {nodes.ranks} slots: "
                "leave the first unset"
            )
        return nodes

    def learner_config(self) -> LearnerConfig:
        """What the learner is told at its start."""
        same = LearnerConfig.model_fields.keys() & type(self).model_fields.keys()
        return LearnerConfig.model_validate(
            {name: getattr(self, name) for name in same}
            | {"dtype": self.learner_dtype, "threads": self.learner_threads, "seed": self.learner_seed}
        )
