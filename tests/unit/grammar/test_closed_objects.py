"""Objects hold what their schema lists, and nothing that a schema refuses comes of it."""

import itertools
import json
import random
from typing import Any, Final

import jsonschema
import pytest

from tests.parity.schema_parity import RECORDED, TABLE, our_verdicts, texts_of
from tests.support.grammar.random_schema import random_schema
from unpaced.grammar.closed_objects import close_objects
from unpaced.grammar.schema import SchemaError, for_llguidance

INT: Final = {"type": "integer"}
ROWS: Final = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: json.dumps(row["schema"])[:60])
def test_texts_are_those_of_llama_servers_grammar(row: dict[str, Any]) -> None:
    assert our_verdicts(row["schema"], list(row["texts"])) == row["texts"]


def test_the_record_is_of_the_table() -> None:
    assert [(row["schema"], list(row["texts"])) for row in ROWS] == [
        (schema, texts_of(instances)) for schema, instances in TABLE
    ]
    verdicts = list(itertools.chain(*(row["texts"].values() for row in ROWS)))
    assert True in verdicts
    assert False in verdicts


@pytest.mark.parametrize(
    ("schema", "fits", "other"),
    [
        (  # any of the schemas that hold together may name a property
            {
                "allOf": [
                    {"type": "object", "properties": {"a": INT}},
                    {"type": "object", "properties": {"b": INT}, "required": ["b"]},
                ]
            },
            ['{"b":2,"a":1}', '{"b":2}'],
            ['{"b":2,"zz":1}', '{"a":1}'],
        ),
        (  # of alternatives only the one that is taken
            {
                "type": "object",
                "properties": {"a": INT},
                "anyOf": [
                    {"properties": {"b": INT}, "required": ["b"]},
                    {"properties": {"c": INT}, "required": ["c"]},
                ],
            },
            ['{"a":1,"b":2}', '{"c":1}'],
            ['{"a":1}', '{"a":1,"b":2,"c":3}', '{"b":2,"zz":1}'],
        ),
        (  # a definition is open to more where it is used together with others, and only there
            {
                "$defs": {"base": {"type": "object", "properties": {"id": INT}}},
                "allOf": [
                    {"$ref": "#/$defs/base"},
                    {"properties": {"of": {"$ref": "#/$defs/base"}}},
                ],
            },
            ['{"id":1,"of":{"id":2}}', '{"id":1}'],
            ['{"of":{"id":2,"of":{}}}', '{"of":{"zz":1}}'],
        ),
        (  # one that says what else may come says it for all
            {
                "allOf": [
                    {"type": "object", "properties": {"a": INT}, "additionalProperties": True},
                    {"properties": {"b": INT}},
                ]
            },
            ['{"a":1,"b":2}', '{"zz":"x"}'],
            ['{"b":"x"}'],
        ),
        (  # required and not described: anything, but there
            {"type": "object", "properties": {"a": INT}, "required": ["a", "z"]},
            ['{"a":1,"z":[true]}'],
            ['{"a":1}', '{"a":1,"z":1,"y":1}'],
        ),
        (
            {
                "$defs": {"e": {"enum": ["x"]}},
                "properties": {"k": {"allOf": [{"$ref": "#/$defs/e"}]}},
            },
            ['{"k":"x"}', "{}"],
            ['{"k":"y"}'],
        ),
        (
            {"$defs": {"a/b c": {"properties": {"v": INT}}}, "$ref": "#/$defs/a~1b%20c"},
            ['{"v":1}'],
            ['{"w":1}'],
        ),
        ({"const": {"properties": {"a": 1}}}, ['{"properties":{"a":1}}'], ["{}"]),
    ],
)
def test_schemas_that_hold_together(
    schema: dict[str, Any], fits: list[str], other: list[str]
) -> None:
    verdicts = our_verdicts(schema, fits + other)
    assert verdicts == dict.fromkeys(fits, True) | dict.fromkeys(other, False)
    for text in fits:
        jsonschema.validate(json.loads(text), schema)


def test_names_and_values_are_no_schemas() -> None:
    schema = {
        "type": "object",
        "properties": {"properties": {"enum": [{"properties": {}}]}},
        "additionalProperties": False,
    }
    assert close_objects(schema) == schema


def test_nothing_comes_that_the_schema_refuses() -> None:
    rng = random.Random(7)
    n_fitting = 0
    for _ in range(150):
        schema = _without_closing(random_schema(rng))
        texts = texts_of(tuple(_instance(schema, rng) for _ in range(3)))
        for text, fits in our_verdicts(schema, texts).items():
            if fits:
                jsonschema.validate(json.loads(text), schema)
                n_fitting += 1
    assert n_fitting > 200


def _without_closing(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_closing(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "additionalProperties"}
    return {key: _without_closing(value) for key, value in kept.items()}


def _instance(schema: dict[str, Any], rng: random.Random) -> Any:
    """A value that may fit."""
    if "anyOf" in schema:
        return _instance(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    if "properties" in schema:
        names = [name for name in schema["properties"] if name in schema.get("required", ())]
        names += [name for name in schema["properties"] if name not in names and rng.random() < 0.5]
        return {name: _instance(schema["properties"][name], rng) for name in names}
    if "items" in schema:
        return [_instance(schema["items"], rng) for _ in range(schema["minItems"])]
    kind = schema["type"]
    values = {
        "string": ["x" * schema.get("minLength", 0), "aab", "yes", "2024-02-03"],
        "integer": [schema.get("minimum", 3)],
        "number": [1.5],
        "boolean": [True],
        "null": [None],
    }
    return rng.choice(values[kind if isinstance(kind, str) else kind[0]])


def test_references_that_multiply_are_refused() -> None:
    links: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)
    }
    links["d60"] = {"properties": {"a": INT}}
    with pytest.raises(SchemaError, match="combined"):
        for_llguidance(json.dumps({"$defs": links, "$ref": "#/$defs/d0"}))


@pytest.mark.parametrize("reference", ["#/$defs/loop", "#", "#/nowhere", "other.json", 5])
def test_references_that_lead_nowhere_or_in_circles_end(reference: Any) -> None:
    schema = {
        "$defs": {"loop": {"allOf": [{"$ref": "#/$defs/loop"}, {"properties": {"a": INT}}]}},
        "allOf": [{"$ref": reference}, {"properties": {"b": INT}}],
    }
    assert "additionalProperties" not in json.dumps(close_objects(schema)["allOf"])
