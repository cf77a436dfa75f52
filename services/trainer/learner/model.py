"""The policy: a Hugging Face causal LM, asked for the logprobs of credited tokens and for nothing else."""

from __future__ import annotations

from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from services.trainer.learner.batch import Batch
from services.trainer.learner.errors import blaming_model_path
from shared.kit.errors import SettingsError

_LOGITS_PER_CHUNK = 16 * 1024 * 1024
"""Logits held at a time (64 MB in fp32). A Qwen vocabulary gives chunks of 110 tokens."""
_STRIDE = 64
"""The head runs on a multiple of this many positions; see `batch.STRIDE`."""


class PackedPolicy(nn.Module):
    """`forward(batch)` → logprobs [N] of the credited tokens, fp32, at their group's temperature."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """Run the decoder over all positions, and the head over those that predict a credited token."""
        hidden_BLD = self.model.base_model(
            input_ids=batch.token_ids_BL,
            attention_mask=batch.mask_B1LL,
            position_ids=batch.position_ids_BL,
            use_cache=False,
        ).last_hidden_state
        count = len(batch.targets_N)
        index_N, targets_N, temperatures_N = (
            functional.pad(t, (0, -count % _STRIDE), value=1)
            for t in (batch.predict_index_N, batch.targets_N, batch.temperatures_N)
        )
        hidden_ND = hidden_BLD.flatten(0, 1)[index_N]
        size = max(1, _LOGITS_PER_CHUNK // self.model.config.vocab_size)
        parts = zip(*(t.split(size) for t in (hidden_ND, targets_N, temperatures_N)), strict=True)
        recompute = torch.is_grad_enabled() and len(batch.targets_N) > size
        return torch.cat([self._chunk(part, recompute) for part in parts])[:count]

    def _chunk(self, part: tuple[Tensor, Tensor, Tensor], recompute: bool) -> Tensor:
        """Logprobs of one chunk; with several chunks the logits are made again in the backward pass, not kept."""
        if recompute:
            return checkpoint(self._head_logprobs, *part, use_reentrant=False)
        return self._head_logprobs(*part)

    def _head_logprobs(self, hidden_ND: Tensor, targets_N: Tensor, temperatures_N: Tensor) -> Tensor:
        logits_NV = self.model.get_output_embeddings()(hidden_ND).float() / temperatures_N.unsqueeze(1)
        chosen_N = logits_NV.gather(1, targets_N.unsqueeze(1)).squeeze(1)
        return chosen_N - logits_NV.logsumexp(1)


def load_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The base model from disk. Dropout is off: the ratio compares two policies, not two noises."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    with blaming_model_path(f"{folder} does not load"):
        return _load(folder, dtype)


def _load(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(folder)
    _refuse_unsupported(config)
    for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if getattr(config, name, 0.0):
            setattr(config, name, 0.0)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=dtype, attn_implementation="sdpa"
    )
    return model


def base_folder(model_path: str) -> Path:
    """The base model on disk: a folder as it is, a Hub name as the cache has it (downloaded where it has not)."""
    folder = Path(model_path)
    if folder.is_dir():
        return folder
    with blaming_model_path(f"{model_path} is neither a folder nor on the Hub"):
        return Path(snapshot_download(model_path))


def _refuse_unsupported(config: object) -> None:
    """Features that our mask or head would silently get wrong."""
    if getattr(config, "use_sliding_window", False):
        raise SettingsError("TABWISE_MODEL_PATH: the learner does not train models with sliding-window attention")
    if getattr(config, "final_logit_softcapping", None):
        raise SettingsError("TABWISE_MODEL_PATH: the learner does not train models with logit soft-capping")
