"""All weights against a LoRA adapter, with and without gradient checkpointing and offload; JSON lines.

A Qwen2 of random weights in the learner's own process, with the KL term on: rounds of one mini-batch each on the same
groups. Each row is measured in a process of its own. Memory is the most that the process ever held, above what its
imports took.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.adapters.worker import Measured, Task

console = Console(stderr=True, highlight=False)
TOKENIZER = Path("models/tabwise-small")
ROWS: list[dict[str, Any]] = [
    {"adapter": adapter, "gradient_checkpointing": checkpointing}
    for adapter in ("none", "lora")
    for checkpointing in (False, True)
]


def main(
    width: Annotated[int, typer.Option(help="Hidden size.")] = 512,
    layers: Annotated[int, typer.Option(min=1)] = 12,
    vocabulary: int = 16384,
    dtype: Annotated[list[str] | None, typer.Option(help="float32, bfloat16; both if not given.")] = None,
    groups: int = 8,
    prompt: Annotated[int, typer.Option(help="Tokens.")] = 256,
    rank: Annotated[int, typer.Option(help="Of the adapter.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Timed ones; the median counts.")] = 3,
) -> None:
    """Measure every row and print its figures."""
    with tempfile.TemporaryDirectory(prefix="adapters-") as folder:
        base = write_base(Path(folder) / "base", width, layers, vocabulary)
        for number in dtype or ["float32", "bfloat16"]:
            for row in ROWS:
                config = row | {"model_path": str(base), "dtype": number, "lora_rank": rank, "learning_rate": 1e-5}
                task = Task(config=config, vocabulary=vocabulary, groups=groups, prompt=prompt, rounds=rounds)
                print(json.dumps(figures(task, measure(task, Path(folder) / "checkpoints"))), flush=True)


def figures(task: Task, measured: Measured) -> dict[str, Any]:
    """One line."""
    told = {name: task.config[name] for name in ("adapter", "dtype", "gradient_checkpointing")}
    return {"bench": "adapters"} | told | measured.model_dump()


def measure(task: Task, folder: Path) -> Measured:
    """In a process of its own; what it wrote goes."""
    command = [sys.executable, "-m", "benchmarks.adapters.worker", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, input=task.model_dump_json(), env=environment, capture_output=True, text=True, check=False
    )
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode != 0:
        raise SystemExit(f"{task.config} failed:\n{done.stderr[-3000:]}")
    measured = Measured.model_validate_json(done.stdout.splitlines()[-1])
    console.print(f"  {task.config['dtype']} {task.config['adapter']}: {measured.cpu_s:.2f} CPU s a round", style="dim")
    return measured


def write_base(folder: Path, width: int, layers: int, vocabulary: int) -> Path:
    """A Qwen2 of random weights, and the small model's tokenizer (only the probe is made with it)."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256),
        tie_word_embeddings=True,
    )
    make: Any = Qwen2ForCausalLM
    make(config).save_pretrained(folder)
    for file in TOKENIZER.glob("tokenizer*"):
        shutil.copyfile(file, folder / file.name)
    return folder


if __name__ == "__main__":
    typer.run(main)
