"""How a prompt and a suffix become one fill-in-the-middle prompt, per model family. Pure."""

from __future__ import annotations

from typing import Final

TEMPLATES: Final = {
    "qwen": "<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>",
}
"""A new family is one line here and one value of the setting `fim_template`."""


def fim_prompt(family: str, prefix: str, suffix: str) -> str:
    """The prompt for what stands between `prefix` and `suffix`."""
    before, _, rest = TEMPLATES[family].partition("{prefix}")
    between, _, after = rest.partition("{suffix}")
    return f"{before}{prefix}{between}{suffix}{after}"
