#!/usr/bin/env python3
"""Which texts a JSON schema lets come, beside the grammar that llama-server makes of it.

    python -m tests.parity.schema_parity --peer FOLDER

records the verdicts of llama-server's grammars in schema_verdicts.json; ours are compared with
them in tests/unit/grammar/test_closed_objects.py. The texts of a schema are instances and what
becomes of them when a property goes, comes, moves or has another value.
"""

import argparse
import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer

from unpaced.grammar.gbnf import parse_gbnf
from unpaced.grammar.gbnf_lark import to_lark
from unpaced.grammar.schema import SchemaError, for_llguidance

RECORDED: Final = Path(__file__).resolve().parent / "schema_verdicts.json"
_INT: Final = {"type": "integer"}
_STR: Final = {"type": "string"}
_NODE: Final = {
    "type": "object",
    "properties": {"v": _INT, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
}

TABLE: Final[tuple[tuple[dict[str, Any], tuple[Any, ...]], ...]] = (
    ({"type": "object"}, ({}, {"a": 1})),
    ({"type": "object", "properties": {}}, ({}, {"a": 1})),
    ({"type": "object", "properties": {"a": _INT, "b": _STR}}, ({"a": 1, "b": "x"},)),
    (
        {"type": "object", "properties": {"a": _INT, "b": _STR, "c": _INT}, "required": ["c"]},
        ({"c": 3, "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 3}),
    ),
    ({"properties": {"a": _INT}}, ({"a": 1}, "text", 5, [])),
    ({"type": "object", "properties": {"a": _INT}, "additionalProperties": False}, ({"a": 1},)),
    (
        {"type": "object", "properties": {"a": _INT}, "additionalProperties": True},
        ({"a": 1, "other": [2]},),
    ),
    (
        {"type": "object", "properties": {"a": _INT}, "additionalProperties": _STR},
        ({"a": 1, "other": "x"}, {"a": 1, "other": 2}),
    ),
    ({"type": "object", "additionalProperties": _INT}, ({"x": 1, "y": 2}, {"x": "y"})),
    ({"additionalProperties": _INT}, ({"x": 1}, 7)),
    (
        {
            "type": "object",
            "properties": {"o": {"type": "object", "properties": {"p": _INT}}, "q": _STR},
            "required": ["o"],
        },
        ({"o": {"p": 1}, "q": "x"}, {"o": {}}),
    ),
    (
        {"type": "array", "items": {"type": "object", "properties": {"a": _INT}}},
        ([{"a": 1}, {}], []),
    ),
    ({"items": {"properties": {"a": _INT}}}, ([{"a": 1}], {"a": 1})),
    (
        {"anyOf": [{"type": "object", "properties": {"a": _INT}}, {"type": "null"}]},
        ({"a": 1}, None),
    ),
    (
        {
            "$defs": {"p": {"type": "object", "properties": {"x": _INT}, "required": ["x"]}},
            "type": "object",
            "properties": {"at": {"$ref": "#/$defs/p"}, "to": {"$ref": "#/$defs/p"}},
            "required": ["at", "to"],
        },
        ({"at": {"x": 1}, "to": {"x": 2}},),
    ),
    (
        {"$defs": {"node": _NODE}, "$ref": "#/$defs/node"},
        ({"v": 1, "next": {"v": 2, "next": None}},),
    ),
    (
        {"definitions": {"node": {"properties": {"v": _INT}}}, "$ref": "#/definitions/node"},
        ({"v": 1},),
    ),
    ({"type": ["object", "null"], "properties": {"a": _INT}}, ({"a": 1}, None)),
    (
        {
            "allOf": [
                {"type": "object", "properties": {"a": _INT}, "required": ["a"]},
                {"type": "object", "properties": {"b": _STR}, "required": ["b"]},
            ]
        },
        ({"a": 1, "b": "x"}, {"b": "x", "a": 1}),
    ),
    (
        {
            "$defs": {"base": {"type": "object", "properties": {"id": _INT}, "required": ["id"]}},
            "allOf": [
                {"$ref": "#/$defs/base"},
                {"properties": {"name": _STR}, "required": ["name"]},
            ],
        },
        ({"id": 1, "name": "x"},),
    ),
    ({"items": [_INT, _STR]}, ([1, "a"], [1], [1, "a", 2])),
    ({"type": "array", "prefixItems": [_INT, _INT]}, ([1, 2], [1, 2, 3])),
    ({"pattern": "^a+$"}, ("aa", "b", 1)),
    ({"minLength": 2}, ("aa", "b", 1)),
    ({"format": "date"}, ("2024-02-03", "b", 1)),
    ({"enum": [{"a": 1}, "x"]}, ({"a": 1}, "x")),
)


def texts_of(instances: tuple[Any, ...]) -> list[str]:
    """The instances and their neighbours, as JSON without spaces."""
    values = list(instances)
    for instance in instances:
        values += _neighbours(instance)
    return list(dict.fromkeys(json.dumps(value, separators=(",", ":")) for value in values))


def _neighbours(value: Any) -> Iterator[Any]:
    others: tuple[Any, ...] = (None, 7, "s", {}, [])
    yield from (other for other in others if other != value)
    if isinstance(value, dict):
        for name in value:
            yield {key: item for key, item in value.items() if key != name}
        yield value | {"zz": 1}
        yield {"zz": "1"} | value
        yield dict(reversed(value.items()))
    if isinstance(value, list):
        yield [*value, *value]
    for key, item in value.items() if isinstance(value, dict) else ():
        for other in _neighbours(item):
            changed = copy.deepcopy(value)
            changed[key] = other
            yield changed
    for i, item in enumerate(value) if isinstance(value, list) else ():
        for other in _neighbours(item):
            yield [*value[:i], other, *value[i + 1 :]]


class Acceptor:
    """Says which texts a grammar takes, by bytes."""

    def __init__(self, grammar: str) -> None:
        self._tokenizer = LLTokenizer("byte")
        self._matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if self._matcher.is_error():
            raise SchemaError(self._matcher.get_error())

    def takes(self, text: str) -> bool:
        """True if it is one of the grammar's texts as a whole."""
        self._matcher.reset()
        tokens = self._tokenizer.tokenize_bytes(text.encode())
        n_taken = self._matcher.try_consume_tokens(tokens)
        return bool(n_taken == len(tokens) and self._matcher.is_accepting())


def our_verdicts(schema: dict[str, Any], texts: list[str]) -> dict[str, bool]:
    """What our grammar of the schema takes."""
    grammar = LLMatcher.grammar_from_json_schema(for_llguidance(json.dumps(schema)))
    acceptor = Acceptor(grammar)
    return {text: acceptor.takes(text) for text in texts}


def gbnf_verdicts(gbnf: str, texts: list[str]) -> dict[str, bool]:
    """What a GBNF grammar takes."""
    lark = to_lark(parse_gbnf(gbnf), {}, n_vocab=256, end_tokens=frozenset())
    acceptor = Acceptor(LLMatcher.grammar_from_lark(lark))
    return {text: acceptor.takes(text) for text in texts}


def record(peer: Path) -> list[dict[str, Any]]:
    """The verdicts of llama-server's grammars."""
    from tests.parity.pair import serving_peer, tiny_model

    rows = []
    with serving_peer(peer, tiny_model("gpt-2"), "-c", "512", "-t", "1") as server:
        for schema, instances in TABLE:
            answer = server.post(
                "/completion", {"prompt": "a", "n_predict": 1, "json_schema": schema}
            )
            gbnf = answer.body["generation_settings"]["grammar"]
            rows.append({"schema": schema, "texts": gbnf_verdicts(gbnf, texts_of(instances))})
    return rows


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder with llama-server")
    rows = record(parser.parse_args().peer)
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{sum(len(row['texts']) for row in rows)} texts of {len(rows)} schemas")
    return 0


if __name__ == "__main__":
    sys.exit(main())
