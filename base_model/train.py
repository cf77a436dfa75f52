"""Trains the small base model from scratch: tokenizer, then a Qwen2 model on fill-in-the-middle rows.

In: nothing but a seed (the code is generated). Out: a model folder that transformers and vLLM load.
Shapes: B rows, T tokens, V vocabulary. Matrices inside the layers are updated with Muon (orthogonalised momentum,
Jordan et al. 2024, with the AdamW-matched step of Liu et al. 2025, arXiv 2502.16982), everything else with AdamW.
"""

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from base_model.data import Hole, Row, base_sources, repeats, training_holes
from base_model.tokenizer import SPECIAL, train_tokenizer


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training. ``near``: share of prompts that hold little more than the cursor's function.

    ``repeats``: share of shards that are random tokens to copy instead of code.
    """

    steps: int
    near: float = 0.0
    repeats: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Size of the model and of its training; a step takes about ``step_tokens``.

    ``context_weight`` is the weight of the loss on the tokens of the prompt.
    """

    phases: tuple[Phase, ...] = (Phase(100, repeats=0.9), Phase(900, 0.85, 0.05), Phase(1100, 0.15))
    step_tokens: int = 4096
    max_tokens: int = 768
    lr: float = 3e-3
    warmup_steps: int = 100
    context_weight: float = 0.5
    seed: int = 20
    threads: int = 2
    vocab_size: int = 2048
    tokenizer_modules: int = 6_000
    hidden: int = 256
    mlp: int = 640
    layers: int = 4
    early_step: int = 1000
    """After this step a first usable model is saved; the tokenizer does not change between it and the last one."""

    @property
    def steps(self) -> int:
        """Updates of all phases together."""
        return sum(phase.steps for phase in self.phases)


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids (B, T), padding at the right; ``middle`` (B, T) is true on the answer's tokens."""

    ids: Tensor
    mask: Tensor
    middle: Tensor


def train(out: Path, settings: TrainSettings) -> Qwen2ForCausalLM:
    """Trains and saves a model; prints progress with the time left."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.threads)
    tokenizer = train_tokenizer(base_sources(settings.tokenizer_modules, settings.seed), settings.vocab_size)
    model = build_model(tokenizer, settings)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {len(tokenizer)} tokens", flush=True)
    optimizers = build_optimizers(model, settings.lr)
    progress = _Progress(settings.steps)
    for step, batch in enumerate(batches(tokenizer, settings)):
        if step == settings.early_step:
            save_model(out, model, tokenizer)
        _set_lr(optimizers, _lr_share(step, settings))
        progress.add(step, batch, *train_step(model, optimizers, batch, settings.context_weight))
    save_model(out, model, tokenizer)
    return model


def build_model(tokenizer: PreTrainedTokenizerFast, settings: TrainSettings) -> Qwen2ForCausalLM:
    """A fresh Qwen2 model: heads of 64, half as many key-value heads, tied embeddings."""
    heads = settings.hidden // 64
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # On a CPU the backward of SDPA's bf16 kernel takes twice as long as that of plain attention.
    return Qwen2ForCausalLM._from_config(config, attn_implementation="eager")


def batches(tokenizer: PreTrainedTokenizerFast, settings: TrainSettings) -> Iterator[Batch]:
    """The batches of all phases, one for each step. Rows of like length go together, to pad little."""
    for i, phase in enumerate(settings.phases):
        seed = settings.seed + i
        code = _grouped_rows(_rows(training_holes(seed, phase.near), tokenizer), tokenizer, settings)
        copies = _grouped_rows(repeats(range(len(SPECIAL), len(tokenizer)), seed), tokenizer, settings)
        which = random.Random(seed)
        for _ in range(phase.steps):
            yield next(copies if which.random() < phase.repeats else code)


def _grouped_rows(
    stream: Iterator[Row], tokenizer: PreTrainedTokenizerFast, settings: TrainSettings
) -> Iterator[Batch]:
    shuffle = random.Random(settings.seed)
    while True:
        rows = [row for row in islice(stream, 512) if len(row[0]) <= settings.max_tokens]
        groups = _grouped(sorted(rows, key=lambda row: len(row[0])), settings.step_tokens)
        for group in shuffle.sample(groups, len(groups)):
            yield collate(group, tokenizer.pad_token_id)


def _grouped(rows: list[Row], tokens: int) -> list[list[Row]]:
    """Rows in groups of about ``tokens`` tokens each; what does not fill a group at the end is left out."""
    groups: list[list[Row]] = [[]]
    for row in rows:
        if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
            groups.append([])
        groups[-1].append(row)
    return groups[:-1] or groups


def collate(rows: list[Row], pad: int) -> Batch:
    """Rows as one padded batch."""
    width = max(len(ids) for ids, _ in rows)
    ids_BT = torch.full((len(rows), width), pad)
    mask_BT = torch.zeros(len(rows), width, dtype=torch.long)
    middle_BT = torch.zeros(len(rows), width, dtype=torch.bool)
    for b, (ids, prompt) in enumerate(rows):
        ids_BT[b, : len(ids)] = torch.tensor(ids)
        mask_BT[b, : len(ids)] = 1
        middle_BT[b, prompt : len(ids)] = True
    return Batch(ids_BT, mask_BT, middle_BT)


def train_step(
    model: Qwen2ForCausalLM, optimizers: list[torch.optim.Optimizer], batch: Batch, context_weight: float
) -> tuple[float, float]:
    """One update. Returns the mean loss on the answers' tokens, and the share of answers right in every token."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden_BTH = model.model(input_ids=batch.ids).last_hidden_state[:, :-1]
        logits_BTV = model.lm_head(hidden_BTH)
    targets_BT = batch.ids[:, 1:]
    loss_BT = functional.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten(), reduction="none")
    loss_BT = loss_BT.view_as(targets_BT)
    middle_BT = batch.middle[:, 1:]
    context_BT = batch.mask[:, 1:].bool() & ~middle_BT
    middle_loss = loss_BT[middle_BT].mean()
    model.zero_grad()
    (middle_loss + context_weight * loss_BT[context_BT].mean()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    right_BT = (logits_BTV.argmax(-1) == targets_BT) | ~middle_BT
    return middle_loss.item(), right_BT.all(1).float().mean().item()


def save_model(out: Path, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes weights (fp32 safetensors), configuration, generation defaults and tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.eos_token_id
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _rows(holes: Iterator[Hole], tokenizer: PreTrainedTokenizerFast) -> Iterator[Row]:
    while True:
        taken = list(islice(holes, 64))
        prompts = tokenizer([hole.prompt for hole in taken]).input_ids
        targets = tokenizer([hole.target for hole in taken]).input_ids
        for prompt, target in zip(prompts, targets, strict=True):
            yield [*prompt, *target], len(prompt)


def build_optimizers(model: Qwen2ForCausalLM, lr: float) -> list[torch.optim.Optimizer]:
    inner = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
    outer = [p for n, p in model.named_parameters() if not (p.ndim == 2 and "layers." in n)]
    muon = torch.optim.Muon(inner, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(outer, lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["peak"] = lr
    return [muon, adamw]


def _lr_share(step: int, settings: TrainSettings) -> float:
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def _set_lr(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


class _Progress:
    """Prints the mean of the last steps, the speed and the time left."""

    def __init__(self, steps: int, every: int = 20) -> None:
        self._steps, self._every = steps, every
        self._start, self._tokens = time.monotonic(), 0
        self._losses: list[float] = []
        self._right: list[float] = []

    def add(self, step: int, batch: Batch, loss: float, right: float) -> None:
        self._tokens += int(batch.mask.sum())
        self._losses.append(loss)
        self._right.append(right)
        if (step + 1) % self._every == 0 or step + 1 == self._steps:
            self._report(step + 1)

    def _report(self, done: int) -> None:
        took = time.monotonic() - self._start
        loss = sum(self._losses) / len(self._losses)
        right = sum(self._right) / len(self._right)
        print(
            f"step {done}/{self._steps}  {self._tokens / 1e6:.2f} M tokens  loss {loss:.3f}  exact {right:.3f}  "
            f"{self._tokens / took:,.0f} tokens/s  {took:.0f} s, {took / done * (self._steps - done):.0f} s left",
            flush=True,
        )
        self._losses, self._right = [], []
