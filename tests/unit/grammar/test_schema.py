"""Schemas as llguidance gets them."""

import json
from typing import Any

import pytest

from unpaced.grammar.schema import MAX_NESTING, SchemaError, for_llguidance


def prepared(schema: Any) -> dict[str, Any]:
    made = json.loads(for_llguidance(json.dumps(schema)))
    del made["x-guidance"]
    return dict(made)


def test_formats_of_other_dialects_are_annotations() -> None:
    schema = {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "password"},
            "b": {"type": "array", "items": {"type": "integer", "format": "int32"}},
            "c": {"anyOf": [{"format": "binary"}, {"type": "string", "format": "uuid"}]},
        },
        "$defs": {"d": {"format": "float"}},
        "additionalProperties": {"const": {"format": "password"}},
    }
    assert prepared(schema) == {
        "type": "object",
        "properties": {
            "format": {"type": "string"},
            "b": {"type": "array", "items": {"type": "integer"}},
            "c": {"anyOf": [{}, {"type": "string", "format": "uuid"}]},
        },
        "$defs": {"d": {}},
        "additionalProperties": {"const": {"format": "password"}},
    }


def test_property_order_stays() -> None:
    names = ["z", "a", "m", "b"]
    schema = {"properties": {name: {"type": "null"} for name in names}}
    assert list(prepared(schema)["properties"]) == names


def test_options_of_the_client_are_kept() -> None:
    schema = {"x-guidance": {"whitespace_flexible": False, "coerce_one_of": True}}
    made = json.loads(for_llguidance(json.dumps(schema)))
    assert made["x-guidance"]["coerce_one_of"] is True
    assert made["x-guidance"]["whitespace_flexible"] is False


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        "null",
        '{"a": NaN}',
        '{"x-guidance": 5}',
        '{"x-guidance": {"lenient": true}}',
        json.dumps(nested(MAX_NESTING + 1)),
        json.dumps({"const": "x" * 300_000}),
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        for_llguidance(text)


def test_limits_are_met() -> None:
    assert prepared(nested(MAX_NESTING - 1))
    assert prepared(True) == {}
