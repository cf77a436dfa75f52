"""The policy: a Hugging Face causal LM, asked for the logprobs of credited tokens and for nothing else."""

from __future__ import annotations

from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from services.trainer.learner.batch import Batch
from services.trainer.learner.errors import blaming_model_path
from services.trainer.learner.head import head_logprobs
from shared.kit.errors import SettingsError

_STRIDE = 64
"""The head runs on a multiple of this many positions; see `attention.STRIDE`."""


class PackedPolicy(nn.Module):
    """`forward(batch)` → logprobs [N] of the credited tokens, fp32, at their group's temperature."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """Run the decoder over all positions, and the head over those that predict a credited token."""
        model = self.model
        model.config._attn_implementation = batch.implementation
        hidden_BLD = model.base_model(
            input_ids=batch.token_ids_BL, position_ids=batch.position_ids_BL, use_cache=False, **batch.arguments
        ).last_hidden_state
        count = len(batch.targets_N)
        index_N, targets_N, temperatures_N = (
            functional.pad(t, (0, -count % _STRIDE), value=1)
            for t in (batch.predict_index_N, batch.targets_N, batch.temperatures_N)
        )
        hidden_ND = hidden_BLD.flatten(0, 1)[index_N]
        head = model.get_output_embeddings()
        return head_logprobs(head, hidden_ND, targets_N, temperatures_N, model.config.vocab_size)[:count]


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


_UNSUPPORTED = {
    "attn_logit_softcapping": "soft-capped attention",
    "final_logit_softcapping": "logit soft-capping",
    "logit_scale": "scaled logits",
    "logits_scaling": "scaled logits",
    "lm_head_multiplier": "scaled logits",
}
"""Features that our attention or head would silently get wrong, by their field in the configuration. 1: none."""
_KNOWN_LAYERS = {"full attention", "sliding attention"}


def _refuse_unsupported(config: PretrainedConfig) -> None:
    found = [feature for field, feature in _UNSUPPORTED.items() if getattr(config, field, None) not in (None, 1)]
    if _slides(config):
        found.append("sliding-window attention")
    found += {kind.replace("_", " ") for kind in getattr(config, "layer_types", None) or ()} - _KNOWN_LAYERS
    if found:
        raise SettingsError(f"TABWISE_MODEL_PATH: the learner does not train models with {', '.join(found)}")


def _slides(config: PretrainedConfig) -> bool:
    """Qwen's configurations have a switch, others (Mistral's) slide wherever they name a window."""
    switch = getattr(config, "use_sliding_window", getattr(config, "sliding_window", None) is not None)
    return bool(switch) or "sliding_attention" in (getattr(config, "layer_types", None) or ())
