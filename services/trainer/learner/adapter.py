"""Low-rank adapters (LoRA; Hu et al. 2021, arXiv 2106.09685, eq. 3), by peft: W x + alpha/rank · B A x, W frozen.

In: the base model. Out: the same model with adapters inside, the folder `adapter/` in peft's format, and the weights
merged for serving. One adapter at a time, without dropout: the ratio compares two policies, not two noises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from services.trainer.learner_api import LearnerConfig
from shared.kit.errors import SettingsError

ALL_LINEAR = "all-linear"
_NAME = "default"
_BASE_LAYER = ".base_layer."
_PEFT_PREFIX = "base_model.model."


class Adapter:
    """The adapter inside a model that is being trained."""

    def __init__(self, model: PreTrainedModel, config: LearnerConfig) -> None:
        self._base = config.model_path
        self._peft = _attached(model, config)
        self._layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
        if config.zero_stage == 3:  # it gives a layer's weights back in the backward pass of what went in
            model.enable_input_require_grads()

    def disabled(self) -> AbstractContextManager[None]:
        """Inside, the model is the base model."""
        context: AbstractContextManager[None] = self._peft.disable_adapter()
        return context

    def merged(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The model's state dict under the names and in the shapes of the base model. Pure."""
        merged = {name.replace(_BASE_LAYER, "."): tensor for name, tensor in state.items() if not _of_adapter(name)}
        for name, layer in self._layers.items():
            weight, a, b = state[f"{name}.base_layer.weight"], *(state[key] for key in _keys(name))
            merged[f"{name}.weight"] = merged_weight(layer, weight, a, b).cpu()
        return merged

    def write(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """The adapter alone, as `PeftModel.from_pretrained` reads it."""
        folder.mkdir()
        own = {
            _PEFT_PREFIX + name.replace(f".{_NAME}.", "."): tensor.detach().cpu().contiguous()
            for name, tensor in state.items()
            if _of_adapter(name)
        }
        save_file(own, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        (folder / "adapter_model.safetensors").chmod(0o644)
        said = self._peft.peft_config[_NAME].to_dict()
        said |= {"inference_mode": True, "base_model_name_or_path": self._base}
        said["target_modules"] = sorted(said["target_modules"])
        (folder / "adapter_config.json").write_text(json.dumps(said, indent=1, sort_keys=True, default=str))


def merged_weight(layer: LoraLayer, weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """W + alpha/rank · B A, summed in single precision and rounded once to the dtype of W."""
    return (weight.float() + layer.scaling[_NAME] * (b.float() @ a.float())).to(weight.dtype)


def linear_layers(model: PreTrainedModel) -> list[str]:
    """Last names of the layers that an adapter can sit on, in the model's order. The head is none: its weights are
    often the embedding's, and the loss reads them in chunks, past the layer."""
    head = model.get_output_embeddings()
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head]
    return list(dict.fromkeys(name.rpartition(".")[2] for name in names))


def targets(wanted: str, there: Sequence[str]) -> list[str]:
    """The layers that `TABWISE_LORA_TARGETS` means, of those that are there. Pure."""
    if not there:
        raise SettingsError("TABWISE_ADAPTER must be none: the model at TABWISE_MODEL_PATH has no linear layers")
    if wanted.strip() == ALL_LINEAR:
        return list(there)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        what = f"the model has no linear layer named {unknown[0]}" if unknown else "names no layer"
        raise SettingsError(f"TABWISE_LORA_TARGETS: {what}; write {ALL_LINEAR} or some of {', '.join(there)}")
    return names


def _attached(model: PreTrainedModel, config: LearnerConfig) -> PeftModel:
    """Random A, B = 0: the same on every rank and at every start, whatever was drawn before."""
    said = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # type: ignore[arg-type]  # it computes with any number
        lora_dropout=0.0,
        target_modules=targets(config.lora_targets, linear_layers(model)),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        peft_model: PeftModel = get_peft_model(model, said, adapter_name=_NAME, autocast_adapter_dtype=False)
    return peft_model


def _keys(layer_name: str) -> tuple[str, str]:
    return f"{layer_name}.lora_A.{_NAME}.weight", f"{layer_name}.lora_B.{_NAME}.weight"


def _of_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name
