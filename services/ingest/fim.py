"""Fill-in-the-middle prompts as editors make them from Qwen's template. Pure.

<|repo_name|>ws\n<|file_sep|>util.py\n…<|file_sep|>main.py\n<|fim_prefix|>PREFIX<|fim_suffix|>SUFFIX<|fim_middle|>
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX, SUFFIX, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
FILE_SEP = "<|file_sep|>"


@dataclass(frozen=True, slots=True)
class FimPrompt:
    """The edited file around the cursor, snippets of other files left out."""

    path: str | None
    """As named before the prefix; None where no file is named."""
    prefix: str
    suffix: str


def parse_fim(prompt: str) -> FimPrompt | None:
    """None where the prompt is not of this template."""
    before, found_prefix, rest = prompt.rpartition(PREFIX)
    prefix, found_suffix, rest = rest.partition(SUFFIX)
    suffix, found_middle, _ = rest.partition(MIDDLE)
    if not (found_prefix and found_suffix and found_middle):
        return None
    _, named, path = before.rpartition(FILE_SEP)
    return FimPrompt(path.strip() if named else None, prefix, suffix)


def insert_before_suffix(prompt: str, typed: str) -> str | None:
    """The prompt after `typed` was typed at the cursor; None where it has no cursor."""
    before, found, after = prompt.rpartition(SUFFIX)
    return f"{before}{typed}{found}{after}" if found else None
