"""Errors in one line, naming the setting to change where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.kit.errors import SettingsError


def one_line(error: BaseException) -> str:
    """Type and first line of an error."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


@contextmanager
def blaming_model_path(what: str) -> Iterator[None]:
    """Whatever goes wrong inside is the base model's fault: transformers and safetensors raise nearly anything."""
    try:
        yield
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"TABWISE_MODEL_PATH: {what} ({one_line(error)})") from error
