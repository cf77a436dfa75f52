"""One JSON object a line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import IO

from services.trainer.warmstart.config import JsonlSource
from services.trainer.warmstart.files import RawFile
from services.trainer.warmstart.sources.rows import raw_file
from shared.kit.errors import SettingsError


def read(source: JsonlSource, where: str) -> Iterator[RawFile]:
    """By order of line. Raises `SettingsError` that names the line."""
    try:
        with _open(source) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield raw_file(_parsed(line, number, source, where), source.columns, number, where)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where}.path: {source.path} cannot be read ({error})") from error


def _open(source: JsonlSource) -> IO[str]:
    if source.path.suffix == ".gz":
        return gzip.open(source.path, "rt", encoding="utf-8")
    return source.path.open(encoding="utf-8")


def _parsed(line: str, number: int, source: JsonlSource, where: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{where}.path: line {number} of {source.path} is no JSON ({error.msg})") from error
    if not isinstance(row, dict):
        raise SettingsError(f"{where}.path: line {number} of {source.path} is no JSON object")
    return row
