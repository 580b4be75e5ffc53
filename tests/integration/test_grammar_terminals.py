"""GBNF with long terminals beside GBNF with a character each, with a vocabulary of 128,256 tokens.

And where texts meet at one place of the grammar they have one mask, which the engine then keeps.
The grammars are llama.cpp's examples and what its converters make of JSON schemas.
"""

import ctypes
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from llama_cpp.llama_grammar import json_schema_to_gbnf

from engine_ext.base.native import load_native
from engine_ext.sequence.grammar_compiler import native_parts
from tests.support.grammar.lark_masks import Vocabulary, tokens_of
from tests.support.llama_source import grammar, vocabulary
from unpaced.grammar.engine_parts import parts_of
from unpaced.grammar.gbnf import parse_gbnf
from unpaced.grammar.gbnf_lark import to_lark
from unpaced.grammar.terminals import with_terminals

GRAMMARS = ("arithmetic", "c", "chess", "english", "japanese", "json", "json_arr", "list")
SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
            "kind": {"enum": ["a", "ab", "abc"]},
            "point": {"type": "array", "items": {"type": "number"}},
            "when": {"type": "string", "format": "date-time"},
        },
        "required": ["name", "kind"],
    },
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]{2,5}-[0-9]+$"}, {"type": "null"}]},
    {"type": "array", "items": {"oneOf": [{"type": "boolean"}, {"type": "object"}]}},
)


@pytest.fixture(scope="module")
def tokens() -> Iterator[Vocabulary]:
    """Llama 3's."""
    load_native()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    path = str(vocabulary("llama-bpe")).encode()
    model = llama_cpp.llama_model_load_from_file(path, params)
    vocab = llama_cpp.llama_model_get_vocab(model)
    buffer = ctypes.create_string_buffer(1024)
    pieces = []
    for token in range(llama_cpp.llama_vocab_n_tokens(vocab)):
        n = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
        pieces.append(buffer.raw[:n] or b"\xff")
    llama_cpp.llama_model_free(model)
    yield Vocabulary(pieces)


def assert_same_masks(tokens: Vocabulary, gbnf: str, n_masks: int = 30) -> None:
    """Along random texts of the grammar, of short tokens more than of long ones."""
    rules = parse_gbnf(gbnf)
    cut = with_terminals(rules)
    assert cut is not None
    reference, ours = (
        tokens.start(to_lark(r, {}, n_vocab=1, end_tokens=frozenset({0}))) for r in (rules, cut)
    )
    start, rng = (reference.copy(), ours.copy()), random.Random(gbnf)
    text = b""
    places = load_native().TextPlaces(native_parts(parts_of(rules)))
    by_place: dict[tuple[bool, tuple[int, int]], bytes] = {}
    for _ in range(n_masks):
        expected = reference.mask()
        assert expected is not None
        assert ours.mask() == expected, text
        place = places.place(text)
        assert place[0]
        assert by_place.setdefault(place, expected) == expected, text
        allowed = [token for token in tokens_of(expected) if token != tokens.end]
        if not allowed:
            reference, ours, text = start[0].copy(), start[1].copy(), b""
            continue
        token = min(rng.choices(allowed, k=3), key=lambda t: len(tokens.tokens[t]))
        text += tokens.tokens[token]
        reference.accept(token)
        ours.accept(token)


@pytest.mark.parametrize("name", GRAMMARS)
def test_llama_cpps_grammars(tokens: Vocabulary, name: str) -> None:
    assert_same_masks(tokens, grammar(name))


def test_the_grammar_that_llama_server_makes_of_a_schema(tokens: Vocabulary) -> None:
    support = Path(__file__).parents[1] / "support"
    text = (support / "grammar" / "person_schema.gbnf").read_text()
    assert_same_masks(tokens, text)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_grammars_of_json_schemas(tokens: Vocabulary, schema: dict[str, Any]) -> None:
    assert_same_masks(tokens, json_schema_to_gbnf(json.dumps(schema)))
