"""Files → samples: a prompt in the model family's template, and what really stands there.

In: the configuration (and the model's tokenizer). Out: `Samples`: those to train on, those held out, and the count of
what was dropped on the way. Notebooks use this too: `build_samples(load_config(path))`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.trainer.warmstart.config import Prompts, WarmStartConfig
from services.trainer.warmstart.corpus import build_corpus
from services.trainer.warmstart.files import SourceFile, digest
from services.trainer.warmstart.holes import Hole, cut_holes
from services.trainer.warmstart.tokens import PromptTokenizer
from shared.fim import NO_SUFFIX, render
from shared.kit.errors import SettingsError


@dataclass(frozen=True, slots=True)
class FimSample:
    """One place in one file. `prefix + reference + suffix` is the file."""

    file: SourceFile
    hole: Hole
    prompt: str
    """What the model is asked: the text around the hole, as much as the budgets allow."""

    @property
    def sample_id(self) -> str:
        """The same for the same place, in every run."""
        return f"{self.file.file_id}:{self.hole.start}-{self.hole.end}"

    @property
    def path(self) -> str:
        """Of the file."""
        return self.file.path

    @property
    def language(self) -> str:
        """Of the file."""
        return self.file.language

    @property
    def kind(self) -> str:
        """Of the hole."""
        return self.hole.kind

    @property
    def prefix(self) -> str:
        """All of the file before the hole."""
        return self.file.text[: self.hole.start]

    @property
    def reference(self) -> str:
        """What stands in the hole."""
        return self.file.text[self.hole.start : self.hole.end]

    @property
    def suffix(self) -> str:
        """All of the file after the hole."""
        return self.file.text[self.hole.end :]

    @property
    def several_lines(self) -> bool:
        """Whether it is asked for as an editor's multi-line completion; else a completion ends with its line."""
        return "\n" in self.reference


@dataclass
class Samples:
    """What a warm start learns from, and how it came about."""

    train: list[FimSample] = field(default_factory=list)
    """In the order of training."""
    test: list[FimSample] = field(default_factory=list)
    files_read: int = 0
    files_train: int = 0
    files_test: int = 0
    dropped_files: Counter[str] = field(default_factory=Counter)
    """By reason: `filters.REASONS`."""
    dropped_holes: Counter[str] = field(default_factory=Counter)
    """`too_long`: the reference has more tokens than a completion may."""

    def counts(self) -> dict[str, object]:
        """For the log."""
        return {
            "files_read": self.files_read,
            "files_train": self.files_train,
            "files_test": self.files_test,
            "dropped_files": dict(self.dropped_files),
            "samples_train": len(self.train),
            "samples_test": len(self.test),
            "dropped_holes": dict(self.dropped_holes),
            "kinds_train": dict(Counter(sample.kind for sample in self.train)),
            "languages_train": dict(Counter(sample.language for sample in self.train)),
        }


def build_samples(config: WarmStartConfig) -> Samples:
    """Raises `SettingsError` where a source or the tokenizer cannot be read, or where nothing is left."""
    tokenizer = PromptTokenizer.of(config.model)
    corpus = build_corpus(config)
    samples = Samples(
        files_read=corpus.read,
        files_train=len(corpus.train),
        files_test=len(corpus.test),
        dropped_files=corpus.dropped,
    )
    cut = _Cutter(config, tokenizer, samples.dropped_holes)
    samples.train = cut.samples(corpus.train, config.prompts.max_train)
    samples.test = cut.samples(corpus.test, config.prompts.max_test)
    _check(samples)
    return samples


def make_prompt(file: SourceFile, hole: Hole, prompts: Prompts, tokenizer: PromptTokenizer) -> str:
    """What the gateway would make of a cursor there, within the budgets."""
    prefix = tokenizer.end_of(file.text[: hole.start], prompts.prefix_tokens)
    after = file.text[hole.end :]
    suffix = tokenizer.beginning_of(after, prompts.suffix_tokens) if after else NO_SUFFIX
    return render(prompts.family, prefix, suffix)


class _Cutter:
    """Samples of files, in an order that depends on the seed and on each file alone."""

    def __init__(self, config: WarmStartConfig, tokenizer: PromptTokenizer, dropped: Counter[str]) -> None:
        self._config, self._tokenizer, self._dropped = config, tokenizer, dropped

    def samples(self, files: Sequence[SourceFile], limit: int | None) -> list[FimSample]:
        """At most `limit`, of as many files as they take."""
        seed, made = self._config.seed, list[FimSample]()
        for file in sorted(files, key=lambda file: digest(f"order {seed} {file.file_id}")):
            if limit is not None and len(made) >= limit:
                break
            made += self._of(file)
        return sorted(made[:limit], key=lambda sample: digest(f"order {seed} {sample.sample_id}"))

    def _of(self, file: SourceFile) -> list[FimSample]:
        longest = self._config.training.max_completion_tokens
        holes = cut_holes(file, self._config.holes, self._config.seed)
        short = [hole for hole in holes if self._tokenizer.count(file.text[hole.start : hole.end]) < longest]
        if len(short) < len(holes):
            self._dropped["too_long"] += len(holes) - len(short)
        return [FimSample(file, h, make_prompt(file, h, self._config.prompts, self._tokenizer)) for h in short]


def _check(samples: Samples) -> None:
    """A run needs both sides."""
    for name, found in (("train on", samples.train), ("hold out", samples.test)):
        if not found:
            dropped = ", ".join(f"{count} {reason}" for reason, count in samples.dropped_files.most_common()) or "none"
            raise SettingsError(
                f"sources: nothing is left to {name}: {samples.files_read} files read, dropped: {dropped}; "
                f"{samples.files_train} to train on, {samples.files_test} held out (split.test_share)"
            )
