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
