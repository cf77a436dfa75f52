"""DeepSpeed behind four verbs: forward, backward, step, save. One optimiser step may take any number of micro-batches.

The gradient-accumulation boundary is set by hand (`set_gradient_accumulation_boundary`), because the number of
micro-batches differs from one mini-batch to the next; ZeRO stages 0 to 3 were seen to give plain AdamW's weights.
"""

from __future__ import annotations

import gc
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from services.trainer.learner.adapter import Adapter
from services.trainer.learner.batch import Batch
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner_api import LearnerConfig
from shared.kit.errors import SettingsError

STATE_TAG = "state"
"""DeepSpeed keeps its files in a folder of this name."""
_BUCKET = 500_000_000
"""Elements of DeepSpeed's buffer for gradients, which it reserves whole: a gigabyte in bfloat16."""


def deepspeed_config(config: LearnerConfig, trained: int = _BUCKET) -> dict[str, Any]:
    """Our settings in DeepSpeed's words, for so many trained parameters. Pure.

    Raises `SettingsError` where they do not go together.
    """
    _refuse_impossible(config)
    zero = {"stage": config.zero_stage, "stage3_gather_16bit_weights_on_model_save": True}
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": config.learning_rate, "weight_decay": config.weight_decay, "torch_adam": True},
        },
        "gradient_clipping": config.max_grad_norm,
        "zero_optimization": zero | {"reduce_bucket_size": min(_BUCKET, trained)},
        "steps_per_print": 1_000_000_000,
    }
    if config.dtype == "bfloat16":
        settings["bf16"] = {"enabled": True, "check_grad_overflow": True}
        settings["data_types"] = {"grad_accum_dtype": "fp32"}
    if config.offload != "none":
        settings["zero_optimization"] |= _offload(config)
        settings["optimizer"]["params"]["fused"] = True  # torch's own on CPU; DeepSpeed's needs a compiler
    return settings


def _refuse_impossible(config: LearnerConfig) -> None:
    if config.dtype == "bfloat16" and config.zero_stage == 0:
        raise SettingsError(
            "TABWISE_ZERO_STAGE must be 1, 2 or 3 with TABWISE_LEARNER_DTYPE=bfloat16 (0 sums gradients in bfloat16)"
        )
    if config.offload == "optimizer" and config.zero_stage == 0:
        raise SettingsError("TABWISE_ZERO_STAGE must be 1, 2 or 3 with TABWISE_OFFLOAD=optimizer (ZeRO moves it)")
    if config.offload == "all" and config.zero_stage != 3:
        raise SettingsError("TABWISE_ZERO_STAGE must be 3 with TABWISE_OFFLOAD=all (only then are weights fetched)")


def _offload(config: LearnerConfig) -> dict[str, Any]:
    place = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {"offload_optimizer": place} | ({"offload_param": place} if config.offload == "all" else {})


def import_deepspeed() -> Any:
    """DeepSpeed, without its shared-memory extension, which it would compile (a minute) on first use."""
    import deepspeed
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


class Engine:
    """The policy under training: DeepSpeed's engine over a `PackedPolicy`."""

    def __init__(self, policy: PackedPolicy, config: LearnerConfig, device: torch.device) -> None:
        deepspeed = import_deepspeed()
        self._config = config
        self.adapter = Adapter(policy.model, config) if config.adapter == "lora" else None
        """None: all weights are trained."""
        if self.adapter is not None:
            policy.register_state_dict_post_hook(_forget_frozen)
        if config.gradient_checkpointing:
            policy.model.gradient_checkpointing_enable({"use_reentrant": False})
        warmup = config.warmup_steps
        trained = [p for p in policy.parameters() if p.requires_grad]
        self._engine: Any = deepspeed.initialize(
            model=policy,
            model_parameters=trained,
            config=deepspeed_config(config, sum(p.numel() for p in trained)),
            lr_scheduler=(lambda optimizer: _warmup(optimizer, warmup)) if warmup else None,
            dist_init_required=False,
        )[0]
        self._engine.train()

    @property
    def policy(self) -> PackedPolicy:
        """The module itself; with ZeRO 3 its parameters are partitioned."""
        policy: PackedPolicy = self._engine.module
        return policy

    @property
    def steps(self) -> int:
        """Optimiser steps taken in this lineage, skipped ones included."""
        return int(self._engine.global_steps)

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self._engine.get_lr()[0])

    def logprobs(self, batch: Batch) -> Tensor:
        """Logprobs [N] of the batch's credited tokens."""
        result: Tensor = self._engine(batch)
        return result

    @torch.no_grad()
    def base_logprobs(self, batch: Batch) -> Tensor:
        """As `logprobs`, of the base model: with the adapter disabled."""
        assert self.adapter is not None
        with self.adapter.disabled():
            return self.logprobs(batch)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Accumulate this micro-batch's gradient; `last` of the mini-batch. Every rank calls it equally often."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss)

    def step(self) -> float | None:
        """Take the optimiser step; the gradient norm before clipping, or None where it was skipped as not finite."""
        if self._config.zero_stage == 0:
            return self._plain_step()
        self._engine.step()
        if not self._engine.was_step_applied():
            return None
        return float(self._engine.get_global_grad_norm())

    def _plain_step(self) -> float | None:
        """Stage 0 has no overflow check of its own; gradients are whole and reduced here, so look at them."""
        grads = [p.grad for p in self.policy.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(grads))
        if not math.isfinite(norm):
            self._engine.zero_grad()
            return None
        self._engine.step()
        return norm

    def state(self) -> dict[str, Tensor] | None:
        """The model's state dict, adapter included, gathered from all ranks (collective); complete on rank 0."""
        if self._config.zero_stage < 3:
            return dict(self.policy.model.state_dict())
        state = self._engine._zero3_consolidated_16bit_state_dict()
        return None if state is None else {name.removeprefix("model."): t for name, t in state.items()}

    def save_state(self, folder: Path) -> None:
        """Everything that a resume needs of what is trained, optimiser included (collective)."""
        trained_only = self.adapter is not None
        self._engine.save_checkpoint(
            str(folder), tag=STATE_TAG, save_latest=False, exclude_frozen_parameters=trained_only
        )

    def load_state(self, folder: Path) -> None:
        """Undo everything since `save_state` (collective)."""
        whole = self.adapter is None  # else the frozen weights are the base model's, which are there
        loaded, _ = self._engine.load_checkpoint(str(folder), tag=STATE_TAG, load_module_strict=whole)
        if loaded is None:
            raise ValueError(f"{folder} holds no DeepSpeed state")
        self._keep_rate()

    def _keep_rate(self) -> None:
        """Rate and decay are the settings'; DeepSpeed brings back those that the state was saved with."""
        scheduler, rate = self._engine.lr_scheduler, self._config.learning_rate
        groups = self._engine.optimizer.param_groups
        share = scheduler.lr_lambdas[0](scheduler.last_epoch) if scheduler is not None else 1.0
        for group in groups:
            group.update(lr=rate * share, weight_decay=self._config.weight_decay)
        if scheduler is not None:
            scheduler.base_lrs = [rate] * len(groups)

    def close(self) -> None:
        """Give the memory back."""
        self._engine.destroy()
        self._engine = None
        gc.collect()


def _forget_frozen(policy: nn.Module, state: dict[str, Tensor], prefix: str, metadata: dict[str, Any]) -> None:
    """DeepSpeed leaves out what is frozen under its first name, and would save a tied embedding as the head."""
    for name, parameter in policy.named_parameters(prefix.rstrip("."), remove_duplicate=False):
        if not parameter.requires_grad:
            state.pop(name, None)


def _warmup(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / steps))
