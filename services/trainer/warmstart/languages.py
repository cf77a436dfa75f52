"""Which programming language a file is in, by `identify`'s tables; one word for one language. Pure."""

from __future__ import annotations

import io
from typing import Final

from identify import identify

_GENERIC: Final = {"text", "binary", "header", "file", "executable", "non-executable"}
_ALIASES: Final = {
    "pyi": "python", "python2": "python", "python3": "python", "cython": "python", "py": "python",
    "ts": "typescript", "tsx": "typescript", "jsx": "javascript", "js": "javascript", "node": "javascript",
    "c++": "cpp", "c#": "csharp", "golang": "go", "sh": "shell", "bash": "shell", "zsh": "shell",
}  # fmt: skip


def language_named(name: str) -> str:
    """A data set's or a library's name of a language, as it is called here."""
    lower = name.strip().lower()
    return _ALIASES.get(lower, lower)


def language_of(path: str) -> str:
    """By the file's name; empty where that says nothing. A `.h` may be either, and counts as C."""
    tags = identify.tags_from_filename(path.rpartition("/")[2]) - _GENERIC
    return _of(tags)


def language_of_script(content: bytes) -> str:
    """By the first line's `#!`."""
    command = identify.parse_shebang(io.BytesIO(content))
    return _of(identify.tags_from_interpreter(command[0].rpartition("/")[2]) - _GENERIC) if command else ""


def _of(tags: set[str] | frozenset[str]) -> str:
    named = sorted({language_named(tag) for tag in tags})
    return named[0] if named else ""
