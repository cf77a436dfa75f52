"""What Continue sends for a pause, and what it shows of the answer.

In: the text left and right of the cursor; or a raw completion. Out: the exact prompt on the wire; or the text a
person sees. Pure functions without dependencies, used by the simulated developers and by the base model's training,
so that the model learns the very strings it will be asked.
"""

from collections.abc import Iterable

FIM_PREFIX = "<|fim_prefix|>"
FIM_SUFFIX = "<|fim_suffix|>"
FIM_MIDDLE = "<|fim_middle|>"
END_OF_TEXT = "<|endoftext|>"

STOP = (
    END_OF_TEXT,
    FIM_PREFIX,
    FIM_MIDDLE,
    FIM_SUFFIX,
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
    "/src/",
    "#- coding: utf-8",
    "```",
)
"""The ``stop`` list of Continue's request for a model whose name contains "qwen" and "coder"."""

_SUFFIX_MATCH = 20
_SUFFIX_WINDOW = 30


def fim_prompt(prefix: str, suffix: str) -> str:
    """Continue's prompt for one file without snippets. It never sends an empty suffix: a newline stands for it."""
    return f"{FIM_PREFIX}{prefix}{FIM_SUFFIX}{suffix or chr(10)}{FIM_MIDDLE}"


def shown_text(raw: str, prefix: str = "", suffix: str = "", *, multiline: bool = False) -> str:
    """What Continue shows of a raw completion; empty when it shows nothing (and then posts no event either).

    Cuts at stop tokens, at ``diff --git``, where the suffix begins, and (unless ``multiline``) at the first newline;
    drops a doubled leading space and code fences; discards blank text and text that only repeats the line below.
    Continue's filters over several lines (repeated lines, blank lines, edit distance) do not apply to one line.
    """
    text = _cut_at(raw, [*STOP, "diff --git"])
    text = _cut_at_suffix(text, suffix)
    if not multiline:
        text = text.split("\n", 1)[0]
    text = text.rstrip("\r").replace("```", "")
    if prefix.endswith(" ") and text.startswith(" "):
        text = text[1:]
    if not text.strip() or _is_line_below(text, suffix):
        return ""
    return text


def _cut_at(text: str, stops: Iterable[str]) -> str:
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def _cut_at_suffix(text: str, suffix: str) -> str:
    """Cuts where 20 characters in a row are found within the first 30 of the text after the cursor."""
    target = suffix.lstrip()[:_SUFFIX_WINDOW]
    if len(target) < _SUFFIX_MATCH:
        return text
    for at in range(len(text) - _SUFFIX_MATCH + 1):
        if text[at : at + _SUFFIX_MATCH] in target:
            return text[:at]
    return text


def _is_line_below(text: str, suffix: str) -> bool:
    below = next((line.strip() for line in suffix.split("\n")[1:] if line.strip()), "")
    return bool(below) and text.strip() == below
