"""JSON schemas, bounded and with our defaults for llguidance."""

from typing import Any, Final

import orjson

from unpaced.grammar.closed_objects import TooCombined, close_objects

MAX_BYTES: Final = 262144
MAX_NESTING: Final = 100
# At most what llama-server's grammars allow between the parts of a value: a model at a high
# temperature would otherwise write blanks until its tokens run out.
_WHITESPACE: Final = r"( |\n{1,2}[ \t]{0,20})"
_OPTIONS: Final = "x-guidance"
# JSON Schema 2020-12, validation, section 7.3. A format that is none of them says nothing about a
# value ("password", "int32"); one that is, and that llguidance does not know, is refused by it.
_FORMATS: Final = frozenset(
    (
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uuid",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    )
)
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")


class SchemaError(ValueError):
    """What was given is no JSON schema, or too large."""


def for_llguidance(text: str) -> str:
    """The schema as llguidance takes it. Raises: SchemaError."""
    if len(text.encode()) > MAX_BYTES:
        raise SchemaError(f"the schema is longer than {MAX_BYTES} bytes")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise SchemaError("the schema must be an object or a boolean")
    if _nesting(schema) > MAX_NESTING:
        raise SchemaError(f"the schema is nested more than {MAX_NESTING} deep")
    options = schema.get(_OPTIONS, {})
    if not isinstance(options, dict):
        raise SchemaError(f"{_OPTIONS} must be an object")
    if options.get("lenient"):
        raise SchemaError(f"{_OPTIONS}.lenient would ignore parts of the schema")
    merged = {"whitespace_pattern": _WHITESPACE} | options
    try:
        closed = close_objects(_without_annotations(schema))
    except TooCombined as error:
        raise SchemaError(str(error)) from None
    return orjson.dumps(closed | {_OPTIONS: merged}).decode()


def _without_annotations(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without formats of other dialects. Values (`const`, `enum`) are left alone."""
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "format" and isinstance(value, str) and value not in _FORMATS:
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            kept[key] = {name: _each_schema(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"):
            kept[key] = _each_schema(value)
        else:
            kept[key] = value
    return kept


def _each_schema(value: Any) -> Any:
    """A schema, or a list of them."""
    if isinstance(value, list):
        return [_each_schema(item) for item in value]
    return _without_annotations(value) if isinstance(value, dict) else value


def _nesting(value: Any) -> int:
    """Levels of objects and arrays."""
    depth, level = 0, [value]
    while level:
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
        if depth > MAX_NESTING + 1:
            break
    return depth - 1
