"""What is wrong with a configuration, in one sentence: the key, and what is allowed there. Pure."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem. `model`: what was validated."""
    first = error.errors(include_url=False)[0]
    place = first["loc"]
    if first["type"] == "extra_forbidden":
        *above, key = place
        section = _section(model, tuple(above))
        allowed = ", ".join(section.model_fields) if section else "others"
        return f"{dotted(above)}{'.' if above else ''}{key}: there is no such key; allowed are {allowed}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        message = "is missing"
    return f"{dotted(place)}: {message}" if place else message


def dotted(place: Any) -> str:
    """`sources[0].path` of ("sources", 0, "folder", "path"): the kind of a source is no key."""
    text = ""
    after_index = False
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not after_index:
            text += f".{part}" if text else str(part)
        after_index = isinstance(part, int) and text.startswith("sources")
    return text


def _section(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model that describes this place."""
    found: list[type[BaseModel]] = [model]
    for part in place:
        if isinstance(part, int):
            continue
        named = [one for one in found if part in one.model_fields]
        if named:
            found = _models(named[0].model_fields[part].annotation)
        else:  # the tag of a union
            found = [one for one in found if part in get_args(one.model_fields["kind"].annotation)]
    return found[0] if found else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Every model within a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
