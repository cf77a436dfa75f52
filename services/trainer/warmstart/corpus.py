"""Sources → files to train on and files that are held out, and a count of everything that was dropped.

In: raw files of all sources, in the order of the configuration. Out: `Corpus`. The same sources give the same corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.trainer.warmstart.config import Split, WarmStartConfig
from services.trainer.warmstart.duplicates import Duplicates
from services.trainer.warmstart.files import RawFile, SourceFile, digest
from services.trainer.warmstart.filters import FileFilter
from services.trainer.warmstart.sources import read_sources
from shared.fim import FAMILIES

_SCALE = 16**16


@dataclass
class Corpus:
    """Each file once."""

    train: list[SourceFile] = field(default_factory=list)
    test: list[SourceFile] = field(default_factory=list)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """By reason (`filters.REASONS`)."""


def build_corpus(config: WarmStartConfig) -> Corpus:
    """Read, filter and split. Raises `SettingsError` where a source cannot be read."""
    rules = FileFilter(config.filters, FAMILIES[config.prompts.family].stop)
    return sort_out(read_sources(config), rules, Duplicates(config.filters.near_duplicates), config.split)


def sort_out(files: Iterable[RawFile], rules: FileFilter, duplicates: Duplicates, split: Split) -> Corpus:
    """See the module."""
    corpus = Corpus()
    for raw in files:
        corpus.read += 1
        file = rules(raw)
        reason = file if isinstance(file, str) else duplicates.reason(file)
        if reason is not None or isinstance(file, str):
            corpus.dropped[str(reason)] += 1
        else:
            (corpus.test if held_out(file, split) else corpus.train).append(file)
    return corpus


def held_out(file: SourceFile, split: Split) -> bool:
    """A property of the file alone: adding or removing others never moves it."""
    key = file.file_id if split.by == "path" else digest(file.text)
    return int(digest(f"held out {key}"), 16) / _SCALE < split.test_share
