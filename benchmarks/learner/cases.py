"""What is trained: a model shape with random weights, and groups of random tokens, both from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Side = Literal["ours", "trl"]

SHAPES: dict[str, dict[str, Any]] = {
    "small": {
        "vocab_size": 2048,
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "qwen2.5-coder-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True,
    },
}
"""Of a `Qwen2Config`. `small` is models/tabwise-small's."""
TOKENIZER = Path("models/tabwise-small")
"""TRL wants one; no token is made with it."""
LEARNING_RATE = 1e-5
CLIP_LOW, CLIP_HIGH = 0.2, 0.28


class Case(BaseModel):
    """One cell of the grid and how it is run. `group` samples of `completion` tokens each behind `prompt` tokens."""

    model_config = ConfigDict(frozen=True)

    shape: str = "small"
    prompt: int = 1024
    completion: int = 32
    group: int = 8
    groups: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpointing: bool = False
    threads: int = 1
    steps: int = 3
    """Timed, after one that is not."""
    seed: int = 1
    attention: Literal["auto", "dense", "prefix", "flex"] = "auto"
    """Ours."""

    @property
    def samples(self) -> int:
        """Of one optimiser step."""
        return self.groups * self.group

    @property
    def tokens(self) -> int:
        """Of one optimiser step, each sample counted with its prompt, on both sides."""
        return self.samples * (self.prompt + self.completion)


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt's samples."""

    prompt: list[int]
    completions: list[list[int]]
    advantages: list[float]


@dataclass(frozen=True, slots=True)
class Step:
    """What one optimiser step found; see `Measured`."""

    loss: float
    grad_norm: float
    logprob: float


def make_groups(case: Case) -> list[Group]:
    """The same on both sides. Advantages do not add up to nothing, so that the loss's value says something."""
    random, words = Random(case.seed), SHAPES[case.shape]["vocab_size"]

    def draw(count: int) -> list[int]:
        return [random.randrange(1, words) for _ in range(count)]

    return [
        Group(
            prompt=draw(case.prompt),
            completions=[draw(case.completion) for _ in range(case.group)],
            advantages=[random.uniform(-1.0, 1.5) for _ in range(case.group)],
        )
        for _ in range(case.groups)
    ]


def build_model(case: Case) -> Any:
    """Random weights from the seed: the same on both sides. fp32; each side casts as it is used to."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(case.seed)
    longest = case.prompt + case.completion
    build: Any = Qwen2ForCausalLM
    return build(Qwen2Config(**SHAPES[case.shape], max_position_embeddings=longest, pad_token_id=0))


class Measured(BaseModel):
    """What one process found."""

    device: str
    seconds: list[float]
    """Of each timed step."""
    peak_memory_mb: float
    loss: float
    """Of the first step; this and the following are to be equal on both sides."""
    grad_norm: float
    """Of the first step, before clipping."""
    logprob: float
    """Mean over completion tokens in the first step, nats."""
    logprob_last: float
    """In the last step: whether the optimiser went the same way."""
    tflop: float
    """Multiplications and additions in matrix products that one step needs on this side, 10¹²."""
    matrix_tflops: float
    """What the device does of them in a second, measured with a large product in the same precision, 10¹²/s."""
