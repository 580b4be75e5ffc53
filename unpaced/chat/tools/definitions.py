"""A tool's schema as part of a larger one: `$defs` move to the root, where `$ref` finds them."""

from typing import Any

_KEYS = ("$defs", "definitions")


def split_definitions(schema: dict[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema without its definitions, and these; their names begin with `prefix` in both.

    The references of the first are right under a root that has the second as its `$defs`.
    """
    names: dict[str, str] = {}
    found: dict[str, Any] = {}
    for key in _KEYS:
        for name, definition in (schema.get(key) or {}).items():
            names[f"#/{key}/{name}"] = f"#/$defs/{prefix}{name}"
            found[prefix + name] = definition
    if not found:
        return schema, {}
    rest = {key: value for key, value in schema.items() if key not in _KEYS}
    return _renamed(rest, names), _renamed(found, names)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _renamed(item, names) for key, item in value.items()}
    reference = renamed.get("$ref")
    if isinstance(reference, str):
        renamed["$ref"] = names.get(reference, reference)
    return renamed


def may_be_string(schema: Any, definitions: dict[str, Any], depth: int = 0) -> bool:
    """Whether a value of this schema can be a string; references are into `definitions`.

    A circle of references is taken as no string. Source: llama.cpp 0c1e57098
    common/json-schema.cpp:421-470.
    """
    if not isinstance(schema, dict) or depth > 32:
        return False
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = definitions.get(reference.removeprefix("#/$defs/"))
        return may_be_string(found, definitions, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(may_be_string(part, definitions, depth + 1) for part in schema[key])
    if isinstance(schema.get("allOf"), list) and "type" not in schema:
        return all(may_be_string(part, definitions, depth + 1) for part in schema["allOf"])
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(schema.get("enum"), list):
        return any(isinstance(value, str) for value in schema["enum"])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return "string" in kinds
    if kinds is None:
        return any(key in schema for key in ("pattern", "minLength", "maxLength", "format"))
    return bool(kinds == "string")
