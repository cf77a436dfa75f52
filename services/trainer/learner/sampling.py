"""Completions from the policy that is being trained: for warm start and benchmarks; online the engine samples.

In: `SampleRequest` and the model in memory. Out: one `SampledGroup` per prompt, as an engine would have sampled it: the
token that ended a completion belongs to it, logprobs are those of the learner's own forward pass at the same
temperature. Nothing is cut from the distribution (no top-p, no top-k), so importance weights are defined.
Every group has random numbers of its own: batching, ranks and the other prompts change none of its draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from services.trainer.learner.decoding import FILLER, SharedPrompts, sampling_mode
from services.trainer.learner.errors import blaming_model_path
from services.trainer.learner_api import SampledCompletion, SampledGroup, SampleRequest
from shared.fim.families import SPECIAL_TOKENS
from shared.kit.errors import TabwiseError

_POSITIONS = 32 * 1024
"""Cached positions of one batch of prompts: 0.13 GB for the small model, 1.9 GB for Qwen2.5-Coder-7B in bfloat16."""
_UNFINISHED = "\ufffd"
"""What a tokenizer writes for a character whose last bytes are still to come."""


class SamplingRefused(TabwiseError):
    """These prompts cannot be sampled from; the message says which and why."""


@dataclass(slots=True)
class _Member:
    """One completion as it grows. `row` and `slot`: which prompt of the batch, which of its members."""

    row: int
    slot: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    stop_reason: str | None = None


Agree = Callable[[list[int]], list[int]]
"""Rank 0's tokens, where all ranks run every prompt together."""


def _own(tokens: list[int]) -> list[int]:
    return tokens


class Sampler:
    """Tokenizer and end tokens of one base model."""

    def __init__(self, base_folder: Path, device: torch.device) -> None:
        with blaming_model_path(f"the tokenizer of {base_folder} does not load"):
            self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(base_folder)
        self._end_tokens = end_tokens(base_folder, self._tokenizer)
        self._device = device

    def prepare(self, request: SampleRequest, model: PreTrainedModel) -> SampleRequest:
        """The request with token ids for prompts and a seed; raises `SamplingRefused` where it cannot be done."""
        prompts = [list(self._encode(prompt)) for prompt in request.prompts]
        longest = getattr(model.config, "max_position_embeddings", None) or float("inf")
        for at, prompt in enumerate(prompts):
            if not prompt or min(prompt) < 0 or max(prompt) >= model.config.vocab_size:
                raise SamplingRefused(f"prompt {at} is empty or has token ids that the model's vocabulary does not")
            if len(prompt) + request.max_tokens > longest:
                raise SamplingRefused(
                    f"prompt {at} has {len(prompt)} tokens: with max_tokens={request.max_tokens} that is more than the "
                    f"model's {longest} positions; shorten the prompt or lower max_tokens"
                )
        seed = secrets.randbits(63) if request.seed is None else request.seed
        return request.model_copy(update={"prompts": prompts, "seed": seed})

    def sample(
        self, model: PreTrainedModel, request: SampleRequest, groups: Sequence[int], agree: Agree = _own
    ) -> list[SampledGroup]:
        """Those of a prepared request's prompts that have the indices `groups`, in that order."""
        done: dict[int, SampledGroup] = {}
        with sampling_mode(model):
            for batch in self._batches(request, groups):
                done |= zip(batch, self._sample(model, request, batch, agree), strict=True)
        return [done[index] for index in groups]

    def _encode(self, prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        token_ids: list[int] = self._tokenizer.encode(prompt)
        return token_ids

    def _batches(self, request: SampleRequest, groups: Sequence[int]) -> Iterator[list[int]]:
        """Prompts of similar length together, within `_POSITIONS`."""
        batch: list[int] = []
        for index in sorted(groups, key=lambda index: -len(request.prompts[index])):
            longest = len(request.prompts[batch[0] if batch else index]) + request.n * request.max_tokens
            if batch and longest * (len(batch) + 1) > _POSITIONS:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _sample(
        self, model: PreTrainedModel, request: SampleRequest, batch: Sequence[int], agree: Agree
    ) -> list[SampledGroup]:
        prompts = [[int(token) for token in request.prompts[index]] for index in batch]
        members = [[_Member(row, slot) for slot in range(request.n)] for row in range(len(batch))]
        randoms = [_uniforms(request, index) for index in batch]
        cache = SharedPrompts(model, prompts, self._device)
        logits_KV = cache.prefill().repeat_interleave(request.n, dim=0)
        alive, rows = [member for group in members for member in group], list(range(len(batch)))
        for said in range(request.max_tokens):
            uniforms_K = [float(randoms[member.row][member.slot, said]) for member in alive]
            tokens_K, logprobs_K = draw(logits_KV, uniforms_K, request.temperature)
            for member, token, logprob in zip(alive, agree(tokens_K), logprobs_K, strict=True):
                member.token_ids.append(token)
                member.logprobs.append(logprob)
            self._end(alive, request.stop)
            alive = [member for member in alive if not member.ended]
            if not alive or said == request.max_tokens - 1:
                break
            rows = _forget_finished(cache, rows, alive)
            logits_KV = _next_logits(cache, rows, alive, said)
        return [
            SampledGroup(prompt_token_ids=prompt, samples=[self._completion(member) for member in group])
            for prompt, group in zip(prompts, members, strict=True)
        ]

    def _end(self, alive: Sequence[_Member], stop: Sequence[str]) -> None:
        """Mark those whose newest token ended them."""
        for member in alive:
            member.ended = member.token_ids[-1] in self._end_tokens
        going_on = [member for member in alive if not member.ended] if stop else []
        window = 4 * max(map(len, stop), default=0)  # a character has at most four bytes, each at most one token
        for member, text in zip(going_on, self._decode([m.token_ids[-window:] for m in going_on]), strict=True):
            hits = [(text.find(string) + len(string), string) for string in stop if string in text]
            if hits:
                member.ended, member.stop_reason = True, min(hits)[1]

    def _completion(self, member: _Member) -> SampledCompletion:
        """Texts of all beginnings of the tokens give the offsets."""
        *beginnings, text = self._decode([member.token_ids[:end] for end in range(len(member.token_ids) + 1)])
        if member.stop_reason is not None:
            text = text[: text.find(member.stop_reason)]
        elif member.ended:
            text = beginnings[-1]  # not every family's tokenizer calls its FIM marks special
        return SampledCompletion(
            token_ids=member.token_ids,
            logprobs=member.logprobs,
            text=text,
            text_offsets=[len(beginning.rstrip(_UNFINISHED)) for beginning in beginnings],
            finish="stop" if member.ended else "length",
            stop_reason=member.stop_reason,
        )

    def _decode(self, sequences: Sequence[list[int]]) -> list[str]:
        return [
            str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
            for ids in sequences
        ]


def end_tokens(base_folder: Path, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids at which a completion ends: the generation config's, and every special token, FIM marks among them."""
    ids = {*tokenizer.all_special_ids, tokenizer.eos_token_id}
    for token_id, token in tokenizer.added_tokens_decoder.items():
        if token.special or token.content in SPECIAL_TOKENS:
            ids.add(token_id)
    if (base_folder / "generation_config.json").is_file():
        configured = GenerationConfig.from_pretrained(base_folder).eos_token_id
        ids |= {*configured} if isinstance(configured, list) else {configured}
    return frozenset(int(token_id) for token_id in ids if token_id is not None)


def draw(logits_KV: Tensor, uniforms_K: Sequence[float], temperature: float) -> tuple[list[int], list[float]]:
    """One token per row by inverting the distribution function at `uniforms_K` (each in [0, 1)), and its logprob.

    Temperature 0: the most probable one, with its logprob at temperature 1. In fp32, the sums in fp64.
    """
    scaled_KV = logits_KV.float() / (temperature or 1.0)
    logprobs_KV = scaled_KV - scaled_KV.logsumexp(1, keepdim=True)
    if not torch.isfinite(logprobs_KV.amax(1)).all():
        raise SamplingRefused("the policy's logits are not finite: its weights are broken")
    chosen_K = logprobs_KV.argmax(1) if temperature == 0 else _inverse(logprobs_KV, uniforms_K)
    picked_K = logprobs_KV.gather(1, chosen_K.unsqueeze(1)).squeeze(1)
    return chosen_K.tolist(), picked_K.tolist()


def _inverse(logprobs_KV: Tensor, uniforms_K: Sequence[float]) -> Tensor:
    below_KV = logprobs_KV.double().exp().cumsum(1)
    target_K1 = torch.tensor(uniforms_K, dtype=torch.float64, device=below_KV.device).unsqueeze(1) * below_KV[:, -1:]
    return torch.searchsorted(below_KV, target_K1, right=True).squeeze(1).clamp(max=below_KV.shape[1] - 1)


def _uniforms(request: SampleRequest, index: int) -> np.ndarray:
    """[n, max_tokens] in [0, 1), of this group alone; the first members' are the same whatever `n` is."""
    return np.random.default_rng([request.seed or 0, index]).random((request.n, request.max_tokens))


def _forget_finished(cache: SharedPrompts, rows: list[int], alive: Sequence[_Member]) -> list[int]:
    """Shrink the cache once a quarter of its rows is done with; more often costs more copying than it saves."""
    wanted = {member.row for member in alive}
    if len(wanted) > 0.75 * len(rows):
        return rows
    cache.keep([at for at, row in enumerate(rows) if row in wanted])
    return [row for row in rows if row in wanted]


def _next_logits(cache: SharedPrompts, rows: Sequence[int], alive: Sequence[_Member], said: int) -> Tensor:
    """Run the newest token of every living member; logits [K, V] in their order."""
    at = {row: place for place, row in enumerate(rows)}
    slots: list[list[_Member]] = [[] for _ in rows]
    index_K = []
    for member in alive:
        index_K.append((at[member.row], len(slots[at[member.row]])))
        slots[at[member.row]].append(member)
    width = max(map(len, slots))
    tokens_BM = [[m.token_ids[-1] for m in row] + [0] * (width - len(row)) for row in slots]
    members_BM = [[m.slot for m in row] + [FILLER] * (width - len(row)) for row in slots]
    logits_BMV = cache.step(tokens_BM, members_BM, said)
    return logits_BMV[[row for row, _ in index_K], [slot for _, slot in index_K]]
