"""What sources yield and what is left of it. No I/O but `RawFile.read`, which a filter calls when it needs the text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as its source knows it, not read yet."""

    path: str
    """Relative to its repository or data set, with `/`."""
    read: Callable[[], bytes | str]
    repo: str = ""
    size: int | None = None
    """Bytes, where the source knows before reading."""
    language: str | None = None
    """As a data set's column says; None: the path decides."""
    licence: Callable[[], str | None] = lambda: None
    """SPDX name or expression as the source knows it: a column, or the nearest licence file."""
    generated: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to learn from."""

    path: str
    text: str
    language: str
    """In lower case; empty where it isn't known."""
    repo: str = ""
    licence: str | None = None

    @property
    def file_id(self) -> str:
        """The same for the same repository and path, in every run."""
        return digest(f"{self.repo}\n{self.path}")


def digest(text: str) -> str:
    """SHA-256 of a text, the first 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
