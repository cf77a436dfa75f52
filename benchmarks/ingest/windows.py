"""Code as developers have it: windows of the Python standard library's own modules, as long as an editor sends them."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX_CHARS, SUFFIX_CHARS = 900, 600
WINDOWS = 2_000


@dataclass(frozen=True, slots=True)
class Window:
    """A place in a file. `text` is the rest of the cursor's line."""

    prefix: str
    text: str
    suffix: str


def windows(seed: int = 1) -> list[Window]:
    """The same ones each time, for one version of Python."""
    rng = random.Random(seed)
    files = [text for path in _modules() if len(text := path.read_text("utf-8", "replace")) > 4 * PREFIX_CHARS]
    return [_window(rng.choice(files), rng) for _ in range(WINDOWS)]


def _modules() -> Iterator[Path]:
    library = Path(sysconfig.get_path("stdlib"))
    yield from sorted(
        path for folder in (".", "asyncio", "email", "json", "xml") for path in (library / folder).glob("*.py")
    )


def _window(text: str, rng: random.Random) -> Window:
    at = rng.randrange(PREFIX_CHARS, len(text) - SUFFIX_CHARS)
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return Window(text[at - PREFIX_CHARS : at], text[at:end], text[end : end + SUFFIX_CHARS])
