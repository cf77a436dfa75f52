"""Checkpoint folders: written whole or not at all, and refused where they are not what the request names.

In: the engine and the base model's folder. Out: `vNNNNNN/` with Hugging Face files, `probe.json`, `lineage.json` and
`deepspeed/` (shared.contracts.checkpoint). Everything goes to `vNNNNNN.tmp/` first, is flushed to disk, then renamed.
With an adapter the Hugging Face weights are merged; `adapter/` (peft's format) and `deepspeed/` hold it alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from services.trainer.learner.adapter import Adapter
from services.trainer.learner.engine import STATE_TAG, Engine
from services.trainer.learner.errors import one_line
from services.trainer.learner.ranks import Ranks
from services.trainer.learner_api import CheckpointRef, LearnerConfig
from shared.contracts.checkpoint import Probe
from shared.contracts.names import PROBE_FILE
from shared.kit.errors import TabwiseError

LINEAGE_FILE = "lineage.json"
STATE_FOLDER = "deepspeed"
ADAPTER_FOLDER = "adapter"
WEIGHTS_FILE = "model.safetensors"
_SHARED_WITHIN_S = 10.0
"""A network file system may show a new folder late."""
_SHAPE = {
    "ranks": "TABWISE_LEARNER_RANKS",
    "zero_stage": "TABWISE_ZERO_STAGE",
    "dtype": "TABWISE_LEARNER_DTYPE",
    "adapter": "TABWISE_ADAPTER",
    "lora_rank": "TABWISE_LORA_RANK",
    "lora_alpha": "TABWISE_LORA_ALPHA",
    "lora_targets": "TABWISE_LORA_TARGETS",
}
"""Fields of `Lineage` in which a resume must agree, and the setting of each."""
_COPIED = (
    "config.json", "generation_config.json", "tokenizer*", "vocab.*", "merges.txt", "*.model",
    "special_tokens_map.json", "added_tokens.json", "chat_template*",
)  # fmt: skip


class CheckpointError(TabwiseError):
    """A checkpoint folder is missing, broken, or not the one that was asked for; the message says which and why."""


class Lineage(BaseModel):
    """Where a checkpoint comes from, and the shape in which its optimiser state was saved."""

    model_config = ConfigDict(frozen=True)

    version: int
    lineage: str
    parent: int
    parent_lineage: str
    ranks: int
    zero_stage: int
    dtype: str
    adapter: str = "none"
    lora_rank: int | None = None
    """This and the following: None without an adapter."""
    lora_alpha: float | None = None
    lora_targets: str | None = None


def lineage_of(target: CheckpointRef, base: CheckpointRef, config: LearnerConfig, ranks: int) -> Lineage:
    """Of a checkpoint that this learner writes."""
    lora = config.adapter == "lora"
    return Lineage(
        version=target.version,
        lineage=target.lineage,
        parent=base.version,
        parent_lineage=base.lineage,
        ranks=ranks,
        zero_stage=config.zero_stage,
        dtype=config.dtype,
        adapter=config.adapter,
        lora_rank=config.lora_rank if lora else None,
        lora_alpha=config.lora_alpha if lora else None,
        lora_targets=config.lora_targets if lora else None,
    )


def folder_of(ref: CheckpointRef) -> Path:
    """The folder of a version above 0."""
    if ref.folder is None:
        raise CheckpointError(f"version {ref.version} ({ref.lineage}) names no folder; only version 0 may")
    return Path(ref.folder)


def verify(ref: CheckpointRef, config: LearnerConfig, ranks: int) -> None:
    """Raise unless this learner can resume from `ref`. Version 0 is the base model and always can."""
    if ref.version == 0:
        return
    folder = folder_of(ref)
    try:
        found = Lineage.model_validate_json((folder / LINEAGE_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise CheckpointError(
            f"{folder} is not a whole checkpoint: {type(error).__name__} at {LINEAGE_FILE}"
        ) from error
    if (found.version, found.lineage) != (ref.version, ref.lineage):
        raise CheckpointError(
            f"{folder} holds version {found.version} of round {found.lineage}, not {ref.version} of {ref.lineage}"
        )
    _same_shape(folder, found, lineage_of(ref, ref, config, ranks))
    if not (folder / STATE_FOLDER / STATE_TAG).is_dir():
        raise CheckpointError(f"{folder} has no {STATE_FOLDER}/: it can be served, but not trained on")


def _same_shape(folder: Path, found: Lineage, now: Lineage) -> None:
    for field, setting in _SHAPE.items():
        saved, wanted = getattr(found, field), getattr(now, field)
        if saved != wanted:
            raise CheckpointError(
                f"{folder} was written with {setting}={saved} and cannot be resumed with {wanted}: set it back"
            )


def load(engine: Engine, ref: CheckpointRef) -> None:
    """Weights, optimiser and schedule of `ref` into a freshly built engine (collective). Call `verify` before."""
    folder = folder_of(ref)
    try:
        engine.load_state(folder / STATE_FOLDER)
    except Exception as error:  # DeepSpeed and torch raise nearly anything for a damaged file
        raise CheckpointError(f"{folder}: {STATE_FOLDER}/ could not be read: {one_line(error)}") from error


def save(
    engine: Engine,
    base_folder: Path,
    target: CheckpointRef,
    lineage: Lineage,
    probe: Callable[[Path], Probe],
    ranks: Ranks,
) -> None:
    """Write `target.folder` (collective). When this returns on rank 0 the folder is there, whole and flushed.

    `probe` is asked on rank 0 when the weights lie in the folder that it is given.
    """
    final = folder_of(target)
    draft = final.with_name(final.name + ".tmp")
    if ranks.first:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    ranks.barrier()
    _same_folder_everywhere(draft, ranks)
    engine.save_state(draft / STATE_FOLDER)
    state = engine.state()
    ranks.barrier()
    if ranks.first and state is not None:
        _write_weights(draft, base_folder, engine.adapter, state)
        (draft / PROBE_FILE).write_text(probe(draft).model_dump_json())
        (draft / LINEAGE_FILE).write_text(lineage.model_dump_json(indent=1))
        _publish(draft, final)
    ranks.barrier()


def _same_folder_everywhere(draft: Path, ranks: Ranks) -> None:
    """Raise on all ranks where one does not see what rank 0 has made."""
    blind = int(ranks.reduce([float(not _appears(draft))])[0])
    if blind:
        raise CheckpointError(
            f"TABWISE_CHECKPOINT_ROOT must be one folder on all nodes: {blind} ranks do not see {draft}"
        )


def _appears(folder: Path) -> bool:
    deadline = time.monotonic() + _SHARED_WITHIN_S
    while not folder.is_dir():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _write_weights(draft: Path, base_folder: Path, adapter: Adapter | None, state: dict[str, Tensor]) -> None:
    if adapter is None:
        write_model(draft, base_folder, state)
    else:
        write_model(draft, base_folder, adapter.merged(state))
        adapter.write(draft / ADAPTER_FOLDER, state)


def write_model(folder: Path, base_folder: Path, weights: dict[str, Tensor]) -> None:
    """Weights as one safetensors file; configuration and tokenizer byte for byte as in the base model."""
    for pattern in _COPIED:
        for file in base_folder.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    save_file(_without_ties(weights), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors makes it 0600; publisher and engine may be other users


def _without_ties(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each storage once (a tied head is the embedding again, and Hugging Face and vLLM tie it on load)."""
    kept: dict[int, str] = {}
    for name, tensor in weights.items():
        kept.setdefault(tensor.data_ptr(), name)
    return {name: weights[name].detach().cpu().contiguous() for name in kept.values()}


def _publish(draft: Path, final: Path) -> None:
    """Flush, and rename over whatever an uncommitted attempt left."""
    for file in draft.rglob("*"):
        _flush(file)
    _flush(draft)
    if final.exists():
        shutil.rmtree(final)
    draft.rename(final)
    _flush(final.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
