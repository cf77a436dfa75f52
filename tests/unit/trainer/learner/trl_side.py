"""TRL's own trainers, run up to their loss: everything but the sampling of tokens is their code.

In: groups of token ids with rewards and behaviour logprobs. Out: the inputs that TRL makes of them (advantages,
importance ratios, reference logprobs) and TRL's loss. Importing TRL takes some seconds and warns: do it inside a test.
"""

# torch, transformers and trl are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return,no-untyped-def,misc"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel


@dataclass(frozen=True)
class Said:
    """One completion of one prompt. `group` numbers the prompts; those of one group lie together."""

    group: int
    prompt: list[int]
    tokens: list[int]
    behaviour: list[float]
    reward: float


def _reward(completions: list[str], reward: list[float], **_: Any) -> list[float | None]:
    """The data set's own column."""
    return list(reward)


def _arguments(folder: Path, said: Sequence[Said], options: dict[str, Any]) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "trl"),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "per_device_train_batch_size": len(said),
        "num_generations": sum(one.group == said[0].group for one in said),
        **options,
    }


def _rows(said: Sequence[Said]) -> list[dict[str, Any]]:
    return [{"prompt": "x", "reward": one.reward} for one in said]


def grpo_trainer(model: PreTrainedModel, folder: Path, said: Sequence[Said], **options: Any) -> Any:
    """`GRPOTrainer` whose generation says what was said. `options`: of `GRPOConfig`."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    class Scripted(GRPOTrainer):
        def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
            prompt_ids, tokens = [one.prompt for one in said], [one.tokens for one in said]
            return prompt_ids, tokens, None, [""] * len(said), [one.behaviour for one in said], {}, None, None

    trainer = Scripted(
        model=model,
        reward_funcs=_reward,
        args=GRPOConfig(**_arguments(folder, said, options)),
        train_dataset=Dataset.from_list(_rows(said)),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    return _ready(trainer)


def rloo_trainer(model: PreTrainedModel, folder: Path, said: Sequence[Said], **options: Any) -> Any:
    """`RLOOTrainer`, likewise."""
    from datasets import Dataset
    from trl.trainer.rloo_config import RLOOConfig
    from trl.trainer.rloo_trainer import RLOOTrainer

    class Scripted(RLOOTrainer):
        def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
            return [one.prompt for one in said], [one.tokens for one in said], [""] * len(said)

    trainer = Scripted(
        model=model,
        reward_funcs=_reward,
        args=RLOOConfig(**_arguments(folder, said, options)),
        train_dataset=Dataset.from_list(_rows(said)),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    return _ready(trainer)


def _ready(trainer: Any) -> Any:
    """As inside `train()`: one micro-batch per step."""
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def trl_inputs(trainer: Any, said: Sequence[Said]) -> dict[str, Any]:
    """What TRL makes of the completions, under the weights that the model has now: the proximal policy's."""
    inputs: dict[str, Any] = trainer._generate_and_score_completions(_rows(said))
    if "completion_mask" in inputs and "old_logps" not in inputs:
        inputs.setdefault("old_per_token_logps", _logprobs(trainer, inputs))
    return inputs


def _logprobs(trainer: Any, inputs: dict[str, Any]) -> Tensor:
    token_ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        return trainer._get_per_token_logps_and_entropies(
            trainer.model, token_ids, mask, inputs["completion_ids"].shape[1]
        )[0]
