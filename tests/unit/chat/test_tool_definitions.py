"""Definitions of a tool's schema under another root."""

from unpaced.chat.tools.definitions import split_definitions


def test_definitions_move_and_references_follow() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"type": "array", "items": {"$ref": "#/definitions/B"}},
            "$ref": {"type": "string"},
            "elsewhere": {"$ref": "#/properties/a"},
        },
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
        "definitions": {"B": {"enum": [1]}},
    }
    rest, definitions = split_definitions(schema, "t0_")
    assert rest["properties"] == {
        "a": {"$ref": "#/$defs/t0_A"},
        "b": {"type": "array", "items": {"$ref": "#/$defs/t0_B"}},
        "$ref": {"type": "string"},
        "elsewhere": {"$ref": "#/properties/a"},
    }
    assert definitions == {
        "t0_A": {"anyOf": [{"$ref": "#/$defs/t0_A"}, {"type": "null"}]},
        "t0_B": {"enum": [1]},
    }
    assert "$defs" not in rest and "definitions" not in rest


def test_a_schema_without_definitions_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert split_definitions(schema, "t0_") == (schema, {})
