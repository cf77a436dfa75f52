"""TRL's step on a case: `GRPOTrainer`'s own `training_step`, gradient clipping and optimiser, as in its `train()`.

What is given to it are the tensors that its `_generate_and_score_completions` makes: each sample with its own prompt in
a padded batch. Its settings are its defaults (loss `dapo`, micro-batches of at most 8 samples, fused AdamW, clipping at
1.0, logits in chunks by its fused head, no reference model) except those that a case names for both sides: precision,
gradient checkpointing, learning rate, both clip bounds.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from benchmarks.learner.cases import CLIP_HIGH, CLIP_LOW, LEARNING_RATE, TOKENIZER, Case, Step, build_model, make_groups
from benchmarks.learner.memory import Mark

warnings.filterwarnings("ignore", module="trl|accelerate|transformers|datasets")
_MICRO_BATCH = 8
"""`per_device_train_batch_size`, TRL's default."""


class Peer:
    """One `GRPOTrainer`."""

    def __init__(self, case: Case) -> None:
        from trl.trainer.grpo_trainer import GRPOTrainer

        class Given(GRPOTrainer):
            """Takes the tensors as they are instead of generating them."""

            seen_logprob = 0.0

            def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
                return generation_batch

            def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
                result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
                self.seen_logprob += float(result[0].detach().sum())
                return result

        cuda = torch.cuda.is_available()
        self._case, self.device = case, torch.device("cuda" if cuda else "cpu")
        model = build_model(case).to(self.device)
        self.mark = Mark.here(self.device)
        self._size = min(_MICRO_BATCH, case.samples)
        self._trainer: Any = Given(
            model=model,
            reward_funcs=_no_reward,
            args=_settings(case, self._size),
            train_dataset=_one_prompt(),
            processing_class=AutoTokenizer.from_pretrained(TOKENIZER),
        )
        self._batches = _inputs(case, self._size, self.device)
        self._trainer.current_gradient_accumulation_steps = len(self._batches)
        self._trainer.create_optimizer()
        self._model, self._optimizer = self._trainer.accelerator.prepare(self._trainer.model, self._trainer.optimizer)
        self._model.train()

    def step(self) -> Step:
        """All micro-batches forward and backward, clip, let the optimiser step."""
        trainer = self._trainer
        trainer.seen_logprob = 0.0
        losses = [trainer.training_step(self._model, batch, None) for batch in self._batches]
        norm = trainer.accelerator.clip_grad_norm_(self._model.parameters(), trainer.args.max_grad_norm)
        self._optimizer.step()
        self._model.zero_grad()
        return Step(
            float(sum(losses)), float(norm), trainer.seen_logprob / (self._case.samples * self._case.completion)
        )

    def work(self) -> tuple[int, int, int]:
        """Positions, pairs of query and key, and positions with logits: on CPU its head scores prompts too."""
        case = self._case
        length = case.prompt + case.completion
        scored = case.completion if self.device.type == "cuda" else length - 1
        return case.samples * length, case.samples * length * (length + 1) // 2, case.samples * scored


def _no_reward(completions: list[str], **_: Any) -> list[float | None]:
    """It wants one; the advantages are given."""
    return [None] * len(completions)


def _settings(case: Case, size: int) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    return GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="bench-trl-"),
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=case.dtype == "bfloat16",
        gradient_checkpointing=case.checkpointing,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=case.samples // size,
        num_generations=case.group,
        max_completion_length=case.completion,
        learning_rate=LEARNING_RATE,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        beta=0.0,
    )


def _one_prompt() -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": "x"}])


def _inputs(case: Case, size: int, device: torch.device) -> list[dict[str, Tensor]]:
    """The micro-batches of one optimiser step."""
    groups = make_groups(case)
    prompts = torch.tensor([group.prompt for group in groups for _ in group.completions], device=device)
    completions = torch.tensor([tokens for group in groups for tokens in group.completions], device=device)
    advantages = torch.tensor([value for group in groups for value in group.advantages], device=device)
    return [
        {
            "prompt_ids": prompts[at : at + size],
            "prompt_mask": torch.ones_like(prompts[at : at + size]),
            "completion_ids": completions[at : at + size],
            "completion_mask": torch.ones_like(completions[at : at + size]),
            "advantages": advantages[at : at + size],
            "num_items_in_batch": torch.tensor(completions.numel(), device=device),
        }
        for at in range(0, case.samples, size)
    ]
