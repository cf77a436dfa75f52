"""`make bench-learner`: our learner's step beside that of TRL's GRPO trainer, over a grid; JSON lines last.

Each side of each cell runs in a process of its own, in turns, round after round. Both sides must find the same loss,
gradient norm and logprobs, or it stops. One forward and one backward pass, no reference policy and no old logprobs on
either side. Once more with gradient checkpointing on both sides (TRL's default) for the figures `…_checkpointed`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.learner.cases import SHAPES, Case, Measured, Side
from benchmarks.learner.figures import Sides, check_same, lines
from services.trainer.learner_nodes import outside_groups

console = Console(stderr=True, highlight=False)


def measure(side: Side, case: Case) -> Measured:
    """One process. Exits with what it said where it fails."""
    command = [sys.executable, "-m", "benchmarks.learner.worker", side, case.model_dump_json()]
    environment = outside_groups() | {"OMP_NUM_THREADS": str(case.threads), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{side} failed with {case}:\n{done.stderr[-3000:]}")
    measured = Measured.model_validate_json(done.stdout.splitlines()[-1])
    seconds = " ".join(f"{second:.2f}" for second in measured.seconds)
    console.print(f"  {side:4}  {seconds} s a step, peak {measured.peak_memory_mb:.0f} MB", style="dim")
    return measured


def compare(case: Case, rounds: int) -> Sides:
    """Both sides in turns."""
    sides = Sides([], [])
    for _ in range(rounds):
        sides.ours.append(measure("ours", case))
        sides.trl.append(measure("trl", case))
    return sides


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(
    prompts: Annotated[str, typer.Option(help="Tokens, separated by commas.")] = "256,1024,4096",
    groups: Annotated[str, typer.Option(help="Samples per prompt, separated by commas.")] = "4,8,16",
    completion: Annotated[int, typer.Option(help="Tokens of each sample.")] = 32,
    rounds: Annotated[int, typer.Option(help="Processes of each side and cell.")] = 3,
    steps: Annotated[int, typer.Option(help="Timed steps of each process.")] = 3,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}; small on CPU.")] = "",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16 (a GPU's).")] = "",
    threads: Annotated[int, typer.Option(help="Of the CPU, on both sides.")] = 1,
    checkpointing: Annotated[str, typer.Option(help="Gradient checkpointing: off, on, both.")] = "both",
    attention: Annotated[str, typer.Option(help="Ours: auto, dense, prefix, flex.")] = "auto",
) -> None:
    """Measure and print."""
    gpu = _has_gpu()
    found = []
    for prompt in _numbers(prompts):
        for group in _numbers(groups):
            for checkpointed in {"off": [False], "on": [True], "both": [False, True]}[checkpointing]:
                case = Case.model_validate(
                    {
                        "shape": model or ("qwen2.5-coder-1.5b" if gpu else "small"),
                        "dtype": dtype or ("bfloat16" if gpu else "float32"),
                        "prompt": prompt,
                        "completion": completion,
                        "group": group,
                        "steps": steps,
                        "threads": threads,
                        "checkpointing": checkpointed,
                        "attention": attention,
                    }
                )
                console.print(f"prompt {prompt}, {group} x {completion}{', checkpointed' if checkpointed else ''}")
                sides = compare(case, rounds)
                console.print(f"  the same on both sides: {check_same(case, sides)}")
                found += lines(case, sides)
    for line in found:
        print(json.dumps(line), flush=True)


def _has_gpu() -> bool:
    """Asked in a process of its own: this one needs no torch."""
    asked = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


if __name__ == "__main__":
    typer.run(main)
