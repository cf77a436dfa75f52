"""One word for one language, whoever names it."""

from __future__ import annotations

import pytest

from services.ingest.languages import language_at
from tests.factories import fim_prompt


@pytest.mark.parametrize(
    ("named", "filepath", "path", "language"),
    [
        ("Python", "a.rs", "b.go", "python"),
        ("typescriptreact", "", None, "typescript"),
        ("rs", "", None, "rust"),
        ("brainfuck", "", None, "brainfuck"),
        (None, "file:///w/a.rs", "b.go", "rust"),
        (None, "Makefile", "b.go", "go"),
        (None, "", None, "unknown"),
    ],
)
def test_the_client_goes_before_the_file_and_the_file_before_the_prompt(
    named: str | None, filepath: str, path: str | None, language: str
) -> None:
    assert language_at(named, filepath, fim_prompt(path=path)) == language
