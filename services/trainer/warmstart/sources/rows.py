"""A data set's row as a `RawFile`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.trainer.warmstart.config import Columns
from services.trainer.warmstart.files import RawFile
from shared.kit.errors import SettingsError


def raw_file(row: Mapping[str, Any], columns: Columns, number: int, where: str) -> RawFile:
    """`number`: names files whose row names none. Raises `SettingsError` where a column is not there."""
    text = _column(row, columns.text, "text", where)
    if not isinstance(text, str):
        raise SettingsError(f"{where}.columns.text: column {columns.text!r} of row {number} holds no text")
    licence = _licence(_column(row, columns.licence, "licence", where))
    return RawFile(
        path=str(_optional(row, columns, "path", where) or number),
        read=lambda: text,
        repo=str(_column(row, columns.repo, "repo", where) or ""),
        size=len(text),
        language=_column(row, columns.language, "language", where),
        licence=lambda: licence,
        generated=bool(_column(row, columns.generated, "generated", where)),
    )


def _optional(row: Mapping[str, Any], columns: Columns, name: str, where: str) -> Any:
    """A column that has a default: it may be absent unless it was asked for."""
    column = getattr(columns, name)
    return row.get(column) if name not in columns.model_fields_set else _column(row, column, name, where)


def _column(row: Mapping[str, Any], column: str | None, name: str, where: str) -> Any:
    if column is None:
        return None
    if column not in row:
        raise SettingsError(f"{where}.columns.{name}: there is no column {column!r}; there are {', '.join(row)}")
    return row[column]


def _licence(value: Any) -> str | None:
    """One name, or several that all apply."""
    names = [value] if isinstance(value, str) else list(value or [])
    return " AND ".join(str(name) for name in names) or None
