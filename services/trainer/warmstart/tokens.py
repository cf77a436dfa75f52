"""Tokens of the model's own tokenizer, without transformers. In: text. Out: ids, and the parts that fit a budget."""

from __future__ import annotations

import json
from pathlib import Path

from huggingface_hub import hf_hub_download
from tokenizers import Tokenizer

from shared.kit.errors import SettingsError

_CHARS_PER_TOKEN = 16
"""More than code has; so much text is looked at for each token of a budget."""


class PromptTokenizer:
    """Of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, model: str) -> PromptTokenizer:
        """Of a model folder, or of a name on the Hub. Raises `SettingsError`."""
        file = model_file(model, "tokenizer.json")
        try:
            return cls(Tokenizer.from_file(str(file)))
        except Exception as error:  # the library knows only this type
            raise SettingsError(f"model: {file} is no tokenizer ({str(error)[:200]})") from error

    def prompt_ids(self, prompt: str) -> list[int]:
        """As the engine makes them of a prompt: with the tokens that the tokenizer adds by itself."""
        ids: list[int] = self._tokenizer.encode(prompt).ids
        return ids

    def count(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def end_of(self, text: str, budget: int) -> str:
        """The end of `text`, at most `budget` tokens, from the beginning of a line where that leaves something."""
        part = text[-budget * _CHARS_PER_TOKEN :]
        if len(part) == len(text) and self.count(text) <= budget:
            return text
        while part and self.count(part) > budget:
            offsets = self._offsets(part)
            cut = max(1, offsets[-budget][0])
            line = part.find("\n", cut - 1) + 1
            part = part[line if 0 < line < len(part) else cut :]
        return part

    def beginning_of(self, text: str, budget: int) -> str:
        """The beginning of `text`, at most `budget` tokens, to the end of a line where that leaves something."""
        part = text[: budget * _CHARS_PER_TOKEN]
        if len(part) == len(text) and self.count(text) <= budget:
            return text
        while part and self.count(part) > budget:
            offsets = self._offsets(part)
            cut = min(len(part) - 1, offsets[budget - 1][1])
            line = part.rfind("\n", 0, cut) + 1
            part = part[: line if line > 0 else cut]
        return part

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        """Characters of each token."""
        found: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return found


def model_file(model: str, name: str) -> Path:
    """A file of a model folder, or of the Hub's model of that name. Raises `SettingsError` where it cannot be had."""
    if Path(model).is_dir():
        if not (Path(model) / name).is_file():
            raise SettingsError(f"model: {model} has no {name}, so it is no model folder")
        return Path(model) / name
    try:
        return Path(hf_hub_download(model, name))
    except Exception as error:  # network, gate, no such repository, no such name
        raise SettingsError(f"model: {model} is no folder, and not to be had ({type(error).__name__})") from error


def context_size(model: str) -> int | None:
    """Positions that the model knows; None where its configuration does not say."""
    size = json.loads(model_file(model, "config.json").read_text()).get("max_position_embeddings")
    return size if isinstance(size, int) else None
