"""Which programming language a completion was in. Pure.

From what the client calls it, else from the file's name. One word for one language, so that figures add up.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from shared import fim

UNKNOWN = "unknown"
LANGUAGES = {
    "py": "python", "pyi": "python", "ipynb": "python", "js": "javascript", "mjs": "javascript", "cjs": "javascript",
    "jsx": "javascript", "ts": "typescript", "tsx": "typescript", "java": "java", "kt": "kotlin", "scala": "scala",
    "go": "go", "rs": "rust", "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "cxx": "cpp", "hpp": "cpp",
    "cs": "csharp", "rb": "ruby", "php": "php", "swift": "swift", "lua": "lua", "r": "r", "jl": "julia",
    "sh": "shell", "bash": "shell", "zsh": "shell", "sql": "sql", "html": "html", "css": "css", "scss": "css",
    "vue": "vue", "svelte": "svelte", "md": "markdown", "yaml": "yaml", "yml": "yaml", "toml": "toml",
    "json": "json", "xml": "xml", "dart": "dart", "ex": "elixir", "exs": "elixir", "hs": "haskell", "tf": "terraform",
}  # fmt: skip
"""File extension → language, lower case."""
_EDITORS_NAMES = {
    "javascriptreact": "javascript", "typescriptreact": "typescript", "shellscript": "shell", "c++": "cpp",
    "c#": "csharp", "golang": "go", "jsonc": "json", "less": "css", "sass": "css",
}  # fmt: skip
"""What editors call a language that has another name here."""


def language_of(filepath: str) -> str:
    """From the extension of a path or file URI; `unknown` where it says nothing."""
    path = unquote(urlsplit(filepath).path) if filepath.startswith("file:") else filepath
    name = PurePosixPath(path.replace("\\", "/")).name
    return LANGUAGES.get(name.rpartition(".")[2].lower(), UNKNOWN) if "." in name else UNKNOWN


def language_named(name: str) -> str:
    """The language that a client calls `name`: an editor's name of it, or a file's extension."""
    lower = name.lower()
    return _EDITORS_NAMES.get(lower) or LANGUAGES.get(lower, lower)


def language_at(named: str | None, filepath: str, prompt: str) -> str:
    """The language of a completion: as the client calls it, by its file, or by the file that the prompt names."""
    if named:
        return language_named(named)
    language = language_of(filepath)
    if language != UNKNOWN:
        return language
    place = fim.parse(prompt)
    return language_of(place.path or "") if place else UNKNOWN
