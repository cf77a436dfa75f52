"""What the OpenAPI document says of bodies that FastAPI does not read itself: the routes parse bytes, for speed."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from shared.web.errors import ErrorBody

_REF = "#/components/schemas/{model}"
_JSON, _EVENTS = "application/json", "text/event-stream"


def request_of(*models: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route that takes one of `models`."""
    refs = [{"$ref": _REF.format(model=model.__name__)} for model in models]
    schema: dict[str, Any] = refs[0] if len(refs) == 1 else {"anyOf": refs}
    examples = [example for model in models for example in _examples(model)]
    content: dict[str, Any] = {"schema": schema}
    if examples:
        content["examples"] = {str(number): {"value": example} for number, example in enumerate(examples, 1)}
    return {"requestBody": {"required": required, "content": {_JSON: content}}}


def answers(description: str, *, streamed: bool = False, errors: tuple[int, ...] = ()) -> dict[int | str, Any]:
    """`responses` of a route: success, and the errors in their one shape."""
    content: dict[str, Any] = {_JSON: {"schema": {"type": "object"}}}
    if streamed:
        content[_EVENTS] = {"schema": {"type": "string", "description": "Server-sent events."}}
    error = {_JSON: {"schema": {"$ref": _REF.format(model=ErrorBody.__name__)}}}
    described: dict[int | str, Any] = {200: {"description": description, "content": content}}
    return described | {status: {"description": _MEANING[status], "content": error} for status in errors}


def install_openapi(app: FastAPI, models: tuple[type[BaseModel], ...]) -> None:
    """Put the schemas of `models` and the bearer key into the document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            wanted: list[tuple[Any, Literal["validation"]]] = [(model, "validation") for model in (*models, ErrorBody)]
            _, found = models_json_schema(wanted, ref_template=_REF)
            components = schema.setdefault("components", {})
            components.setdefault("schemas", {}).update(found["$defs"])
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = schema | {"security": [{"key": []}]}
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _examples(model: type[BaseModel]) -> list[Any]:
    extra = model.model_config.get("json_schema_extra")
    found = extra.get("examples", []) if isinstance(extra, dict) else []
    return found if isinstance(found, list) else []


_MEANING = {
    400: "Understood, and cannot be honoured; `param` says which field.",
    401: "No key, or an unknown one.",
    403: "The key may not do this.",
    404: "No name can be like this.",
    413: "The body is too large.",
    422: "Malformed; `param` says which field.",
    429: "Too many requests; see `Retry-After`.",
    503: "Whoever would answer is away; see `Retry-After`.",
}
COMPLETION_ERRORS = (400, 401, 403, 413, 422, 429, 503)
LOOK_ERRORS = (401, 403)
EVENT_ERRORS = (400, 401, 403, 413, 422, 503)
