"""JSON schemas of values and of pydantic models, and what schemas are put together of."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"
_LATER: Final = "x-later"
_TYPES: Final = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def reference(name: str) -> Schema:
    """To a schema among the components."""
    return {"$ref": REFERENCE + name}


def later(name: str) -> Any:
    """The same within a model, whose schema is made before the others."""
    return {_LATER: name}


def of_value(value: Any, **replaced: Schema) -> Schema:
    """Of an object that the server makes: its keys, all of them there, and their values' types.

    `replaced`: schemas of keys whose value does not tell (null, an empty list).
    """
    if isinstance(value, Mapping):
        properties = {
            key: replaced[key] if key in replaced else of_value(item) for key, item in value.items()
        }
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"type": "array"} | ({"items": of_value(value[0])} if value else {})
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return {"type": name}
    return {}


def of_models(models: Sequence[type[BaseModel]]) -> dict[str, Schema]:
    """Of pydantic models and those within, by name."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=REFERENCE + "{model}"
    )
    schemas: dict[str, Schema] = _settled(definitions.get("$defs", {}))
    return schemas


def _settled(value: Any) -> Any:
    """With references in their places, and without titles, which say what names say."""
    if isinstance(value, list):
        return [_settled(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _LATER in value:
        return reference(value[_LATER])
    return {
        key: _settled(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str))
    }


def nullable(schema: Schema) -> Schema:
    """Null counts as absent."""
    return {"anyOf": [schema, {"type": "null"}]}


def either(*schemas: Schema) -> Schema:
    """Any of them."""
    return {"anyOf": list(schemas)}


def array_of(schema: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": schema}


def an_object(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """A body. Keys that are not named here are ignored."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return schema | {"additionalProperties": True}
