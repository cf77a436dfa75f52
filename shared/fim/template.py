"""One family's way of writing a fill-in-the-middle prompt, and of reading it back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNNAMED_REPO = "workspace"
UNNAMED_FILE = "untitled"
"""Stand where a multi-file prompt needs a name and the client told none."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text of another place that may help: a whole file or a part of one."""

    path: str | None
    text: str


@dataclass(frozen=True, slots=True)
class FimPrompt:
    """The edited file around the cursor, other files left out."""

    path: str | None
    """As the prompt names it; None where it names no file."""
    prefix: str
    suffix: str


@dataclass(frozen=True, slots=True)
class FileMarks:
    """How a family that was trained on repositories writes other files before the edited one:
    `repo` NAME `repo_end`, then per file `file` PATH newline TEXT `file_end`, last the edited file."""

    repo: str
    repo_end: str
    file: str
    file_end: str
    path_in_prefix: bool = False
    """The edited file's name stands after the mark of the prefix, not before it."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the parts of a prompt begin and end."""

    prefix_start: int
    prefix_end: int
    suffix_start: int
    suffix_end: int
    path: str | None


@dataclass(frozen=True, slots=True)
class FimTemplate:
    """`before` prefix `between` suffix `after`; with `suffix_first` the two change places."""

    name: str
    before: str
    between: str
    after: str
    stop: tuple[str, ...]
    """The special tokens that can end a completion, the end of text first."""
    suffix_first: bool = False
    files: FileMarks | None = None
    """None: the family knows no other files; they become comments above the prefix."""

    def render(self, prefix: str, suffix: str) -> str:
        """The prompt for one file."""
        first, second = (suffix, prefix) if self.suffix_first else (prefix, suffix)
        return f"{self.before}{first}{self.between}{second}{self.after}"

    def render_files(
        self, prefix: str, suffix: str, path: str | None, repo: str | None, snippets: Sequence[Snippet]
    ) -> str:
        """The prompt for one file among others. Only where `files` is set."""
        marks, named = self.files, f"{_one_line(path) or UNNAMED_FILE}\n"
        assert marks is not None
        head = f"{marks.repo}{_one_line(repo) or UNNAMED_REPO}{marks.repo_end}"
        others = "".join(
            f"{marks.file}{_one_line(snippet.path) or UNNAMED_FILE}\n{snippet.text}{marks.file_end}"
            for snippet in snippets
        )
        if marks.path_in_prefix:
            return f"{head}{others}{marks.file}{self.render(named + prefix, suffix)}"
        return f"{head}{others}{marks.file}{named}{self.render(prefix, suffix)}"

    def begins(self, prompt: str) -> bool:
        """Whether `prompt` starts as this family's do."""
        marks = (self.before, self.files.repo, self.files.file) if self.files else (self.before,)
        return prompt.startswith(marks)

    def locate(self, prompt: str) -> Cursor | None:
        """The parts of a prompt of this family; None where it is none."""
        at = 0 if prompt.startswith(self.before) else prompt.rfind(self.before)
        first_start = at + len(self.before)
        first_end = prompt.find(self.between, first_start)
        second_start = first_end + len(self.between)
        second_end = prompt.rfind(self.after) if self.after else len(prompt)
        if at < 0 or first_end < 0 or second_end < second_start:
            return None
        if self.suffix_first:
            return Cursor(second_start, second_end, first_start, first_end, None)
        path, prefix_start = self._path(prompt, at, first_start)
        return Cursor(prefix_start, first_end, second_start, second_end, path)

    def _path(self, prompt: str, at: int, prefix_start: int) -> tuple[str | None, int]:
        """The edited file's name, and where its text begins."""
        marks = self.files
        if marks is None or at == 0:
            return None, prefix_start
        if not marks.path_in_prefix:
            _, named, path = prompt[:at].rpartition(marks.file)
            return _known(path.strip()) if named else None, prefix_start
        end = prompt.find("\n", prefix_start)
        if end < 0 or not prompt.startswith(marks.repo):
            return None, prefix_start
        return _known(prompt[prefix_start:end]), end + 1


def _known(path: str) -> str | None:
    return None if path in ("", UNNAMED_FILE) else path


def _one_line(name: str | None) -> str:
    return " ".join(name.split("\n")).strip() if name else ""
