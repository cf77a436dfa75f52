"""What the OpenAPI document says of bodies that FastAPI does not read itself: the routes parse bytes, for speed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def takes(*models: type[BaseModel], parameters: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """`openapi_extra` of a route that takes a body of one of `models`: schema, examples, parameters."""
    schemas = [_whole(model) for model in models]
    examples = [example for schema in schemas for example in schema.pop("examples", [])]
    content: dict[str, Any] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if examples:
        content["examples"] = {str(number): {"value": example} for number, example in enumerate(examples, 1)}
    headers = [parameter("header", name) for name in ("authorization", "api-key", "x-project-id")]
    return {
        "parameters": [*parameters, *headers],
        "requestBody": {"required": True, "content": {"application/json": content}},
    }


def parameter(where: str, name: str) -> dict[str, Any]:
    """An optional string in the query or a header."""
    schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "title": name.title()}
    return {"in": where, "name": name, "required": False, "schema": schema}


def _whole(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of `model`, with nested models put in place."""
    schema = model.model_json_schema()
    nested = schema.pop("$defs", {})

    def in_place(value: Any) -> Any:
        if isinstance(value, list):
            return [in_place(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            found = nested[value["$ref"].rpartition("/")[2]]
            return in_place({name: part for name, part in found.items() if name != "examples"})
        return {name: in_place(item) for name, item in value.items()}

    replaced: dict[str, Any] = in_place({name: part for name, part in schema.items() if name != "examples"})
    return replaced | ({"examples": schema["examples"]} if "examples" in schema else {})
