"""Where files come from. In: `sources:` of the configuration. Out: `RawFile`s, read only when a filter asks.

folder   all files below a folder        git      the files of one commit, local or cloned
jsonl    one object a line               hub      a Hugging Face data set, streamed
"""

from __future__ import annotations

from collections.abc import Iterator

from services.trainer.warmstart.config import DatasetSource, FolderSource, GitSource, Source, WarmStartConfig
from services.trainer.warmstart.files import RawFile
from services.trainer.warmstart.sources import folder, git, hub, jsonl


def read_sources(config: WarmStartConfig) -> Iterator[RawFile]:
    """Of all sources, in order. Raises `SettingsError` that names the source."""
    for index, source in enumerate(config.sources):
        yield from _read(source, f"sources[{index}]", config)


def _read(source: Source, where: str, config: WarmStartConfig) -> Iterator[RawFile]:
    if isinstance(source, FolderSource):
        return folder.read(source, where)
    if isinstance(source, GitSource):
        return git.read(source, where, config.output / "git")
    if isinstance(source, DatasetSource):
        return hub.read(source, where)
    return jsonl.read(source, where)
