"""JSON schemas as tables and words, for pages in Markdown."""

import json
from typing import Any, Final

SCHEMAS: Final = "#/components/schemas/"


def cell(text: str) -> str:
    """Text for a table."""
    return " ".join(text.replace("|", "\\|").split())


def type_of(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMAS)
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            kinds = [type_of(one) for one in schema[key]]
            return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if isinstance(kind, list):
        return " or ".join(one for one in kind if one != "null")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return str(kind)
    ends = ["" if end is None else f"{end:g}" for end in (low, high)]
    return (
        f"{kind}, {ends[0]} to {ends[1]}"
        if ends[0] and ends[1]
        else f"{kind}, {ends[0]} .. {ends[1]}"
    )


def fields_of(schema: dict[str, Any]) -> str:
    """A table of an object's fields; of anything else its type."""
    if "properties" not in schema:
        return type_of(schema) + "\n"
    needed = schema.get("required", [])
    lines = ["| field | type | |", "|---|---|---|"]
    for name, field in sorted(schema["properties"].items()):
        notes = ["required"] if name in needed else []
        if field.get("default") is not None:
            notes.append(f"default `{json.dumps(field['default'])}`")
        notes.append(field.get("description", ""))
        lines.append(
            f"| `{name}` | {cell(type_of(field))} | {cell('; '.join(filter(None, notes)))} |"
        )
    return "\n".join(lines) + "\n"
