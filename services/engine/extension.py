"""What vLLM's worker can do for us besides: load a checkpoint in place, whole or not at all.

vLLM's own `reload_weights` takes the model apart before it reads the first file: where a file is missing, broken or of
another shape, the next forward pass kills the engine (seen with 0.32.0). `load_checkpoint` reads and checks everything
first. The publisher calls it through `/collective_rpc` while generation is paused.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]
_TIED = "lm_head.weight"


class CheckpointLoader:
    """Mixed into vLLM's worker by `--worker-extension-cls`; `self` is the worker."""

    def load_checkpoint(self: Any, weights_path: str | None = None) -> dict[str, int]:
        """Replace the weights by those in `weights_path` (None: the base model that the engine started with).

        Raises `ValueError` or `OSError` with the old weights untouched; returns the number of tensors and bytes.
        """
        base = base_weights(self)
        tensors = base if weights_path is None else read_weights(Path(weights_path))
        problem = difference(shapes(base), shapes(tensors))
        if problem is not None:
            raise ValueError(f"{weights_path}: {problem}")
        self.reload_weights(weights_iterator=iter(tensors.items()))
        repack_output_layers(self.get_model())
        return {"tensors": len(tensors), "bytes": sum(tensor.nbytes for tensor in tensors.values())}


def repack_output_layers(model: Any) -> None:
    """vLLM on CPU keeps a packed copy of the output layer; where that is tied to the embedding, no tensor of the
    checkpoint is its own, `reload_weights` leaves the copy as it was, and logits come from old weights (0.32.0)."""
    output_layer = import_module("vllm.model_executor.layers.vocab_parallel_embedding").ParallelLMHead
    for module in model.modules():
        if isinstance(module, output_layer):
            module.quant_method.process_weights_after_loading(module)


def difference(expected: Shapes, found: Shapes) -> str | None:
    """Why a checkpoint does not fit the model, or None. A tied output layer may be written or left out."""
    missing = expected.keys() - found.keys() - {_TIED}
    if missing:
        return f"tensor {min(missing)} is missing"
    extra = found.keys() - expected.keys() - {_TIED}
    if extra:
        return f"tensor {min(extra)} is not in the base model"
    for name in sorted(expected.keys() & found.keys()):
        if expected[name] != found[name]:
            return f"tensor {name} has shape {list(found[name])}, not {list(expected[name])}"
    return None


def shapes(tensors: dict[str, Any]) -> Shapes:
    """Name → shape."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def read_weights(folder: Path) -> dict[str, Any]:
    """All tensors of a Hugging Face folder, read whole."""
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no *.safetensors file that the engine can see")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def base_weights(worker: Any) -> dict[str, Any]:
    """The tensors of the model that the engine was started with, by vLLM's own loader (folder or repository)."""
    config = worker.vllm_config
    loader = import_module("vllm.model_executor.model_loader").get_model_loader(config.load_config)
    pairs: Iterable[tuple[str, Any]] = loader.get_all_weights(config.model_config, worker.get_model())
    return dict(pairs)
