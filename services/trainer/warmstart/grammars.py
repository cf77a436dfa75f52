"""Programming languages that we can parse: name → tree-sitter parser. A grammar is loaded when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final

from tree_sitter import Language, Parser

_GRAMMARS: Final[Mapping[str, tuple[str, str]]] = {
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "python": ("tree_sitter_python", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_ALIASES: Final[Mapping[str, str]] = {
    "c++": "cpp",
    "javascriptreact": "javascript",
    "js": "javascript",
    "jsx": "javascript",
    "ts": "typescript",
    "typescriptreact": "tsx",
}

PARSED_LANGUAGES: Final = tuple(sorted(_GRAMMARS))


def parser_for(language: str, path: str = "") -> Parser | None:
    """A parser of one's own (it is not to be shared between threads); None for a language without a grammar.

    `path` tells `.tsx` from `.ts`, which data sets call by one name.
    """
    name = language.lower()
    name = _ALIASES.get(name, name)
    if name == "typescript" and path.lower().endswith(".tsx"):
        name = "tsx"
    return Parser(_language(name)) if name in _GRAMMARS else None


@cache
def _language(name: str) -> Language:
    module, function = _GRAMMARS[name]
    return Language(getattr(import_module(module), function)())
