"""The model families. A new one is one entry of `FAMILIES`.

Formats, checked against what the vendors publish:
- qwen: Qwen2.5-Coder's README, file level and repository level (both together: `Qwen2.5-Coder-repolevel-fim.py`).
- starcoder: StarCoder's and StarCoder2's model cards; other files as in the StarCoder2 paper (arXiv 2402.19173, 5.3).
- codellama: Meta's `generation.py` and the Transformers documentation; the blanks belong to the format.
- deepseek: DeepSeek-Coder's README ("code insertion"; other files are comments there as well).
- codestral: `mistral-common`, which puts the suffix first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shared.fim.comments import comment_mark, commented
from shared.fim.template import FileMarks, FimPrompt, FimTemplate, Snippet

_QWEN: Final = FimTemplate(
    name="qwen",
    before="<|fim_prefix|>",
    between="<|fim_suffix|>",
    after="<|fim_middle|>",
    stop=(
        "<|endoftext|>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
        "<|im_start|>",
        "<|im_end|>",
    ),
    files=FileMarks(repo="<|repo_name|>", repo_end="\n", file="<|file_sep|>", file_end="\n"),
)
_STARCODER: Final = FimTemplate(
    name="starcoder",
    before="<fim_prefix>",
    between="<fim_suffix>",
    after="<fim_middle>",
    stop=(
        "<|endoftext|>",
        "<fim_prefix>",
        "<fim_middle>",
        "<fim_suffix>",
        "<fim_pad>",
        "<repo_name>",
        "<file_sep>",
    ),
    files=FileMarks(repo="<repo_name>", repo_end="", file="<file_sep>", file_end="", path_in_prefix=True),
)
_CODELLAMA: Final = FimTemplate(
    name="codellama",
    before="<PRE> ",
    between=" <SUF>",
    after=" <MID>",
    stop=("<EOT>", "<PRE>", "<MID>", "<SUF>"),
)
_DEEPSEEK: Final = FimTemplate(
    name="deepseek",
    before="<｜fim▁begin｜>",
    between="<｜fim▁hole｜>",
    after="<｜fim▁end｜>",
    stop=("<｜end▁of▁sentence｜>", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
)
_CODESTRAL: Final = FimTemplate(
    name="codestral",
    before="[SUFFIX]",
    between="[PREFIX]",
    after="",
    stop=("</s>", "[SUFFIX]", "[PREFIX]"),
    suffix_first=True,
)

FAMILIES: Final[Mapping[str, FimTemplate]] = {
    template.name: template for template in (_QWEN, _STARCODER, _CODELLAMA, _DEEPSEEK, _CODESTRAL)
}
NO_SUFFIX: Final = "\n"
"""Stands for an empty suffix in prompts for the end of a file, as Continue and Tabby write them."""
SPECIAL_TOKENS: Final = frozenset(token for template in FAMILIES.values() for token in template.stop)


def render(
    family: str,
    prefix: str,
    suffix: str,
    *,
    path: str | None = None,
    repo: str | None = None,
    language: str | None = None,
    snippets: Sequence[Snippet] = (),
) -> str:
    """The prompt for what stands between `prefix` and `suffix`.

    Without snippets `path` and `repo` do not show in it: whoever asks, the same place gives the same prompt.
    """
    template = FAMILIES[family]
    if not snippets:
        return template.render(prefix, suffix)
    if template.files is None:
        return template.render(commented(snippets, comment_mark(path, language)) + prefix, suffix)
    return template.render_files(prefix, suffix, path, repo, snippets)


def parse(prompt: str) -> FimPrompt | None:
    """The file around the cursor, whatever the family; None where the prompt is of no known template."""
    template = _family_of(prompt)
    cursor = template.locate(prompt) if template else None
    if cursor is None:
        return None
    return FimPrompt(
        cursor.path, prompt[cursor.prefix_start : cursor.prefix_end], prompt[cursor.suffix_start : cursor.suffix_end]
    )


def insert_before_suffix(prompt: str, typed: str) -> str | None:
    """The prompt after `typed` was typed at the cursor; None where it has no cursor."""
    template = _family_of(prompt)
    cursor = template.locate(prompt) if template else None
    return None if cursor is None else f"{prompt[: cursor.prefix_end]}{typed}{prompt[cursor.prefix_end :]}"


def stop_strings(family: str) -> tuple[str, ...]:
    """The family's special tokens: none of them belongs to a completion."""
    return FAMILIES[family].stop


def _family_of(prompt: str) -> FimTemplate | None:
    """By how it starts; else by marks within it, where these cannot be mistaken for code."""
    for template in FAMILIES.values():
        if template.begins(prompt):
            return template
    return next((t for t in FAMILIES.values() if t.before.startswith("<") and t.before in prompt), None)
