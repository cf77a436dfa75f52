"""Under which licence a file is. In: the file's text, and what its source knows. Out: SPDX names.

A data set's column says it, else the file's own `SPDX-License-Identifier`, else the nearest licence file, which
`identify` compares with the common licences' texts. (Like every such comparison it knows no dual licences in prose.)
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from identify.identify import license_id

_SPDX: Final = re.compile(r"SPDX-License-Identifier:\s*([^\r\n*]+)")
_HEAD_CHARS: Final = 4000
_LICENCE_NAME: Final = re.compile(r"^(licen[cs]e|copying|unlicense)([-._].*)?$", re.IGNORECASE)
_WORDS: Final = re.compile(r"\s+(OR|AND)\s+", re.IGNORECASE)


def is_licence_file(name: str) -> bool:
    """`LICENSE`, `LICENCE.txt`, `COPYING` …"""
    return bool(_LICENCE_NAME.match(name))


def spdx_header(text: str) -> str | None:
    """What the file itself says near its beginning."""
    found = _SPDX.search(text[:_HEAD_CHARS])
    return found.group(1).strip().removesuffix("-->").strip() if found else None


def licence_of_text(content: bytes) -> str | None:
    """SPDX name of a licence file's text; None where it is none of the common ones."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "licence"
        file.write_bytes(content)
        try:
            return license_id(str(file))
        except UnicodeDecodeError:
            return None


class LicenceFiles:
    """The licence files of one repository, each read when it is first needed."""

    def __init__(self, files: Mapping[str, Callable[[], bytes]]) -> None:
        """Path of each licence file → how to read it."""
        self._files = {str(PurePosixPath(path).parent): read for path, read in sorted(files.items(), reverse=True)}
        self._known: dict[str, str | None] = {}

    def nearest(self, path: str) -> str | None:
        """The licence of the closest folder above that has one, as SPDX name; None where it is no common one."""
        for parent in map(str, PurePosixPath(path).parents):
            if parent in self._files:
                if parent not in self._known:
                    self._known[parent] = licence_of_text(self._files[parent]())
                return self._known[parent]
        return None


def allowed(expression: str, allow: Collection[str]) -> bool:
    """Whether a file under this SPDX expression may be used: one of its alternatives, with all that it joins.

    Version suffixes do not count: `GPL-2.0-only` and `GPL-2.0-or-later` are `GPL-2.0`. Brackets are read as if absent.
    """
    names = {_plain(name) for name in allow}
    alternatives: list[list[str]] = [[]]
    for part in _WORDS.split(expression.replace("(", " ").replace(")", " ").strip()):
        if part.upper() == "OR":
            alternatives.append([])
        elif part.upper() != "AND":
            alternatives[-1].append(_plain(part))
    return any(all(name in names for name in needed) for needed in alternatives if needed)


def _plain(name: str) -> str:
    """Lower case, without exception and version suffix."""
    base = re.split(r"\s+with\s+", name.strip().lower())[0]
    return base.removesuffix("-only").removesuffix("-or-later").removesuffix("+")
