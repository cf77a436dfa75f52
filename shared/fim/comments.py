"""Other files as comments above the prefix, for model families without a form of their own for them. Pure.

As Tabby writes them, and DeepSeek names files: a line `# Path: util.py`, then the text, each line a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shared.fim.template import UNNAMED_FILE, Snippet

_BY_MARK: Final = {
    "//": "c cc cpp csharp cs cxx dart go h hpp java javascript javascriptreact js jsx kotlin kt kts mjs mm "
    "objective-c php proto rs rust scala sol swift ts tsx typescript typescriptreact zig",
    "--": "ada elm haskell hs lua sql vhd vhdl",
    ";": "asm clj cljs clojure el lisp rkt scheme scm",
    "%": "erl erlang latex tex",
    '"': "vim",
}
"""File endings and editors' names of languages."""
_MARKS: Final = {name: mark for mark, names in _BY_MARK.items() for name in names.split()}


def comment_mark(path: str | None, language: str | None) -> str:
    """What begins a comment line, by the file's ending or the editor's name of the language; `#` where unknown."""
    ending = (path or "").rpartition(".")[2].lower()
    return _MARKS.get(ending) or _MARKS.get((language or "").lower()) or "#"


def commented(snippets: Sequence[Snippet], mark: str) -> str:
    """All snippets as comment lines, each ended by a newline."""
    return "".join(f"{mark} {line}".rstrip() + "\n" for snippet in snippets for line in _lines(snippet))


def _lines(snippet: Snippet) -> Iterable[str]:
    yield f"Path: {snippet.path or UNNAMED_FILE}"
    yield from snippet.text.splitlines()
