"""Trains the small base model from scratch: tokenizer, then a Qwen2 model on fill-in-the-middle rows.

In: nothing but a seed (the code is generated). Out: a model folder that transformers and vLLM load.
Shapes: B rows, T tokens, V vocabulary. Matrices inside the layers are updated with Muon (orthogonalised momentum,
Jordan et al. 2024, with the AdamW-matched step of Liu et al. 2025, arXiv 2502.16982), everything else with AdamW.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from base_model.data import Hole, base_sources, training_holes
from base_model.tokenizer import train_tokenizer


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Size of the model and of its training; a step takes ``rows`` on each of ``threads``.

    ``context_weight`` is the weight of the loss on the tokens of the prompt.
    """

    steps: int = 2200
    rows: int = 8
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
    early_step: int = 700
    """After this step a first usable model is saved; the tokenizer does not change between it and the last one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids (B, T), padding at the right; ``middle`` (B, T) is true on the answer's tokens."""

    ids: Tensor
    mask: Tensor
    middle: Tensor


def train(out: Path, settings: TrainSettings) -> Qwen2ForCausalLM:
    """Trains and saves a model; prints progress with the time left."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(settings.threads)
    tokenizer = train_tokenizer(base_sources(settings.tokenizer_modules, settings.seed), settings.vocab_size)
    model = build_model(tokenizer, settings)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {len(tokenizer)} tokens", flush=True)
    optimizers = build_optimizers(model, settings.lr)
    progress = _Progress(settings.steps)
    stream = batches(tokenizer, settings)
    for step in range(settings.steps):
        if step == settings.early_step:
            save_model(out, model, tokenizer)
        _set_lr(optimizers, _lr_share(step, settings))
        shards = [next(stream) for _ in range(settings.threads)]
        progress.add(step, shards, *train_step(model, optimizers, shards, settings.context_weight, pool))
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
    return Qwen2ForCausalLM(config)


def batches(tokenizer: PreTrainedTokenizerFast, settings: TrainSettings) -> Iterator[Batch]:
    """Batches without end. Rows are sorted by length within eight batches, to pad little."""
    holes = training_holes(settings.seed)
    shuffle = torch.Generator().manual_seed(settings.seed)
    while True:
        rows = [row for row in _rows(holes, tokenizer, 8 * settings.rows) if len(row[0]) <= settings.max_tokens]
        rows.sort(key=lambda row: len(row[0]))
        groups = [rows[i : i + settings.rows] for i in range(0, len(rows), settings.rows)]
        for i in torch.randperm(len(groups), generator=shuffle).tolist():
            yield collate(groups[i], tokenizer.pad_token_id)


def collate(rows: list[tuple[list[int], int]], pad: int) -> Batch:
    """Rows of (token ids, length of the prompt) as one padded batch."""
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
    model: Qwen2ForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    shards: list[Batch],
    context_weight: float,
    pool: ThreadPoolExecutor,
) -> tuple[float, float]:
    """One update over all shards, each on a thread of its own; a shard's rows weigh as much as another's.

    Returns the mean loss on the answers' tokens, and the share of answers right in every token. One thread to a
    shard, and one to an operation, keeps its speed on a busy machine where threads that share operations wait for
    each other. The sum of the shards' gradients does not depend on who is done first.
    """
    results = list(pool.map(lambda shard: _gradients(model, shard, context_weight), shards))
    for i, parameter in enumerate(model.parameters()):
        parameter.grad = torch.stack([gradients[i] for gradients, _, _ in results]).mean(0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return (sum(loss for _, loss, _ in results) / len(shards), sum(right for _, _, right in results) / len(shards))


def _gradients(model: Qwen2ForCausalLM, batch: Batch, context_weight: float) -> tuple[tuple[Tensor, ...], float, float]:
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden_BTH = model.model(input_ids=batch.ids).last_hidden_state[:, :-1]
        logits_BTV = model.lm_head(hidden_BTH)
    targets_BT = batch.ids[:, 1:]
    loss_BT = functional.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten(), reduction="none")
    loss_BT = loss_BT.view_as(targets_BT)
    middle_BT = batch.middle[:, 1:]
    context_BT = batch.mask[:, 1:].bool() & ~middle_BT
    middle_loss = loss_BT[middle_BT].mean()
    loss = middle_loss + context_weight * loss_BT[context_BT].mean()
    right_BT = (logits_BTV.argmax(-1) == targets_BT) | ~middle_BT
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return gradients, middle_loss.item(), right_BT.all(1).float().mean().item()


def save_model(out: Path, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes weights (fp32 safetensors), configuration, generation defaults and tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.eos_token_id
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _rows(holes: Iterator[Hole], tokenizer: PreTrainedTokenizerFast, count: int) -> Iterator[tuple[list[int], int]]:
    taken = [next(holes) for _ in range(count)]
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

    def add(self, step: int, shards: list[Batch], loss: float, right: float) -> None:
        self._tokens += sum(int(shard.mask.sum()) for shard in shards)
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
