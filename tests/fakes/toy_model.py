"""A toy policy with vLLM's manners: byte tokens, a real distribution over them, and incremental text.

Its logits are a deterministic function of the loaded weights (a digest) and of the last tokens, so logprobs change
when other weights are loaded and can be computed by a test beforehand (`prompt_logprobs`).
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
)
EOS = 256
VOCABULARY = 256 + len(SPECIAL_TOKENS)
BASE_WEIGHTS = hashlib.sha256(b"base").digest()
_PRINTABLE = [10, *range(32, 127), EOS]
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")


def encode(text: str) -> list[int]:
    """One token per byte; each special token is one token."""
    ids: list[int] = []
    for part in _SPECIAL.split(text):
        ids.extend([256 + SPECIAL_TOKENS.index(part)] if part in SPECIAL_TOKENS else part.encode())
    return ids


def weights_digest(folder: Path) -> bytes:
    """Digest of a folder's `*.safetensors` and `weights.json`. Raises `FileNotFoundError` where it holds neither."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("weights.json")])
    if not files:
        raise FileNotFoundError(f"cannot find any model weights with `{folder}`")
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.digest()


def logprobs_V(weights: bytes, context: Sequence[int], temperature: float = 1.0) -> np.ndarray:
    """Log distribution over the vocabulary after `context`."""
    seed = hashlib.blake2b(weights + repr(list(context[-4:])).encode(), digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(seed, "big")).normal(size=VOCABULARY) * 2.0
    logits[_PRINTABLE] += 8.0
    logits = logits / (temperature or 1.0)
    logits -= logits.max()
    log_p: np.ndarray = logits - np.log(np.exp(logits).sum())
    return log_p


def prompt_logprobs(weights: bytes, token_ids: Sequence[int]) -> list[float]:
    """log p(token_ids[t + 1] | token_ids[: t + 1]): what a `Probe` of these weights holds."""
    return [float(logprobs_V(weights, token_ids[:t])[token_ids[t]]) for t in range(1, len(token_ids))]


@dataclass(frozen=True)
class Step:
    """One sampled token of one choice, with the text that it adds. `piece` is its text in `logprobs.tokens`,
    `offset` the characters of all pieces before it."""

    token_id: int
    logprob: float
    piece: str
    offset: int
    text: str
    top: dict[str, float]
    finish_reason: str | None
    stop_reason: int | str | None


@dataclass
class Choice:
    """One choice being generated. `script`: the tokens to "sample"; without, they are drawn from the distribution."""

    index: int
    prompt: list[int]
    temperature: float
    max_tokens: int
    stop: list[str]
    include_stop: bool
    skip_special: bool
    rng: np.random.Generator
    script: list[int] | None = None
    top_logprobs: int = 0
    tokens: list[int] = field(default_factory=list)
    output: str = ""
    sent: int = 0
    offset: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, weights: bytes) -> Step:
        """Sample one token; `text` lags by the longest stop string less one character unless it is to be included."""
        log_p = logprobs_V(weights, [*self.prompt, *self.tokens], self.temperature)
        token = self._sample(log_p)
        self.tokens.append(token)
        piece = SPECIAL_TOKENS[token - 256] if token >= 256 else self._decoder.decode(bytes([token]))
        skipped = (token >= 256 and self.skip_special) or (token == EOS and not self.include_stop)
        self.output += "" if skipped else piece
        finish, reason = self._finish(token)
        self.finished = finish is not None
        offset, self.offset = self.offset, self.offset + len(piece)
        return Step(token, float(log_p[token]), piece, offset, self._delta(), self._top(log_p), finish, reason)

    def _sample(self, log_p: np.ndarray) -> int:
        if self.script is not None:
            position = len(self.tokens)
            return self.script[position] if position < len(self.script) else EOS
        if self.temperature == 0:
            return int(log_p.argmax())
        return int(self.rng.choice(VOCABULARY, p=np.exp(log_p) / np.exp(log_p).sum()))

    def _finish(self, token: int) -> tuple[str | None, int | str | None]:
        hits = [(self.output.find(s) + len(s), s) for s in self.stop if s in self.output]
        if hits:
            end, hit = min(hits)
            self.output = self.output[: end if self.include_stop else end - len(hit)]
            return "stop", hit
        if token == EOS:
            return "stop", None
        return ("length", None) if len(self.tokens) >= self.max_tokens else (None, None)

    def _delta(self) -> str:
        held = 0 if self.finished or self.include_stop or not self.stop else max(map(len, self.stop)) - 1
        end = len(self.output) - held
        if end <= self.sent:
            return ""
        delta, self.sent = self.output[self.sent : end], end
        return delta

    def _top(self, log_p: np.ndarray) -> dict[str, float]:
        best = np.argsort(-log_p)[: self.top_logprobs]
        pieces = (*map(chr, range(256)), *SPECIAL_TOKENS)
        chosen = [self.tokens[-1], *(int(token) for token in best)]
        return {pieces[token]: float(log_p[token]) for token in chosen}
