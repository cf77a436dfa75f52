"""KL to the base model in nats per token, on completions that the policy sampled: k3 (docs/learning.md)."""

# transformers is only partly typed
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from services.trainer.learner_api import SampledGroup

_BATCH = 32


class BaseModel:
    """The frozen base model, on one thread."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        transformers_logging.disable_progress_bar()
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def kl(self, groups: Sequence[SampledGroup], temperature: float) -> float:
        """Mean over all tokens of the first completions, at the temperature that they were sampled with."""
        order = sorted(groups, key=lambda group: len(group.prompt_token_ids))
        terms: list[float] = []
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            for group, base_T in zip(batch, self._logprobs(batch, temperature), strict=True):
                terms += [k3(own, base) for own, base in zip(group.samples[0].logprobs, base_T, strict=True)]
        return fmean(terms)

    @torch.no_grad()
    def _logprobs(self, groups: Sequence[SampledGroup], temperature: float) -> list[list[float]]:
        """Padding lies behind what is asked for, where a causal model does not look."""
        rows = [group.prompt_token_ids + group.samples[0].token_ids for group in groups]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        hidden = self._model.base_model(ids).last_hidden_state
        found = []
        for at, (group, row) in enumerate(zip(groups, rows, strict=True)):
            start, count = len(group.prompt_token_ids), len(group.samples[0].token_ids)
            logits = self._model.get_output_embeddings()(hidden[at, start - 1 : start - 1 + count]) / temperature
            logprobs = logits.log_softmax(-1).gather(1, torch.tensor(row[start:]).unsqueeze(1))
            found.append([float(value) for value in logprobs.squeeze(1)])
        return found


def k3(policy_logprob: float, base_logprob: float) -> float:
    """ρ - log ρ - 1 with ρ = π_base / π (Schulman 2020): never negative, 0 where both agree."""
    log_rho = base_logprob - policy_logprob
    return math.exp(log_rho) - log_rho - 1.0
