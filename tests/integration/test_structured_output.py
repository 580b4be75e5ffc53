"""Structured output over HTTP, on the demo model: what comes out is what was asked for."""

import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.support.grammar.random_schema import random_schema
from tests.support.patience import patience
from tests.support.server import Server, serving

PROMPT = "Once upon a time"
HOT: dict[str, Any] = {"prompt": PROMPT, "temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "2", "-c", "4096") as running:
        yield running


def test_any_json_object_at_any_temperature(server: Server) -> None:
    n_complete = 0
    for seed in range(20):
        answer = server.complete(
            **HOT, seed=seed, n_predict=400, response_format={"type": "json_object"}
        )
        if answer["stop_type"] == "limit":
            assert answer["tokens_predicted"] == 400
            continue
        assert answer["stop_type"] == "eos"
        assert isinstance(json.loads(answer["content"]), dict)
        n_complete += 1
    assert n_complete >= 5


def test_random_schemas(server: Server) -> None:
    n_complete = 0
    for seed in range(60):
        schema = random_schema(random.Random(seed))
        answer = server.complete(**HOT, seed=seed, n_predict=250, json_schema=schema)
        if answer["stop_type"] == "eos":
            jsonschema.validate(json.loads(answer["content"]), schema)
            n_complete += 1
    assert n_complete >= 30


@pytest.mark.parametrize(
    ("gbnf", "pattern"),
    [
        ('root ::= "a"{5,5}', "a{5}"),
        ('root ::= ("yes" | "no") [.!]?', "(yes|no)[.!]?"),
        ('root ::= [a-z]{0,20} "end"', "[a-z]{0,20}end"),
        ('root ::= [A-Z] [a-z ]{3,30} "." | "never"', "[A-Z][a-z ]{3,30}[.]|never"),
        ('root ::= "x" ("," root)? "!"', None),
    ],
)
def test_gbnf(server: Server, gbnf: str, pattern: str | None) -> None:
    for seed in range(6):
        answer = server.complete(**HOT, seed=seed, n_predict=120, grammar=gbnf)
        assert answer["generation_settings"]["grammar"] == gbnf
        if answer["stop_type"] == "limit":
            assert pattern is None
            continue
        text = answer["content"]
        if pattern is not None:
            assert re.fullmatch(pattern, text), text
        else:
            n = text.count("x")
            assert text == ",".join("x" * n) + "!" * n


def test_lark_regular_expressions_and_json_in_one_grammar(server: Server) -> None:
    lark = '%llguidance {}\nstart: /[0-9]{3}/ "-" thing\nthing: %json {"enum": ["a", "b"]}'
    answer = server.complete(**HOT, seed=1, grammar=lark)
    assert re.fullmatch('[0-9]{3}-"[ab]"', answer["content"])


def test_streams_are_the_same_text(server: Server) -> None:
    body = {**HOT, "seed": 3, "n_predict": 200, "json_schema": {"type": "array", "maxItems": 3}}
    whole = server.complete(**body)["content"]
    assert "".join(event["content"] for event in server.stream(**body)) == whole


def test_choices_have_their_own_grammar_state(server: Server) -> None:
    answer = server.complete(
        "/v1/completions", **HOT, seed=5, n=4, max_tokens=60, grammar="root ::= [a-c]{4,8}"
    )
    texts = [choice["text"] for choice in answer["choices"]]
    assert all(re.fullmatch("[a-c]{4,8}", text) for text in texts)
    assert len(set(texts)) > 1
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop"}


def test_two_slots_with_different_grammars_at_once(server: Server) -> None:
    alone = [
        server.complete(**HOT, seed=7, n_predict=60, cache_prompt=False, grammar=gbnf)["content"]
        for gbnf in ("root ::= [a-f ]+", "root ::= [0-9]+")
    ]
    together: list[str] = ["", ""]

    def ask(i: int, gbnf: str) -> None:
        for _ in range(5):
            together[i] = server.complete(
                **HOT, seed=7, n_predict=60, cache_prompt=False, grammar=gbnf
            )["content"]

    threads = [
        threading.Thread(target=ask, args=(i, gbnf))
        for i, gbnf in enumerate(("root ::= [a-f ]+", "root ::= [0-9]+"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert re.fullmatch("[a-f ]+", together[0])
    assert re.fullmatch("[0-9]+", together[1])
    # A batch of two rounds differently: the first tokens are the same all the same.
    assert [text[:3] for text in together] == [text[:3] for text in alone]


def test_banned_ends_end_the_text_when_the_grammar_is_complete(server: Server) -> None:
    answer = server.complete(**HOT, grammar='root ::= "yes" | "no"', ignore_eos=True)
    assert answer["content"] in ("yes", "no")
    assert answer["stop_type"] == "eos"


def test_a_grammar_of_banned_tokens_is_an_error(server: Server) -> None:
    response = server.post(
        "/completion", {"prompt": PROMPT, "grammar": 'root ::= "~"', "logit_bias": [["~", False]]}
    )
    assert response.status_code == 400
    assert "banned" in response.json()["error"]["message"]


def test_cancel_under_a_grammar_frees_the_slot(server: Server) -> None:
    body = {**HOT, "n_predict": 3000, "stream": True, "grammar": "root ::= [a-z ]+ [A-Z]{5000}"}
    for _ in range(5):
        connection = server.open_request("/completion", **body)
        assert connection.recv(64)
        connection.close()
    with server.open_request("/completion", **body) as connection:
        connection.shutdown(socket.SHUT_RDWR)
    server.until(lambda: server.metric("llamacpp:requests_processing") == 0)
    assert server.complete(prompt=PROMPT, n_predict=3, ignore_eos=True)["tokens_predicted"] == 3


def test_lazy_grammar(server: Server) -> None:
    free = server.complete(prompt=PROMPT, temperature=0, n_predict=30, return_tokens=True)
    parts = [
        server.complete("/detokenize", tokens=free["tokens"][i:j])["content"]
        for i, j in ((0, 3), (3, 6))
    ]
    word = parts[1]
    assert word.isascii() and '"' not in word and "\n" not in word
    answer = server.complete(
        prompt=PROMPT,
        temperature=0,
        n_predict=40,
        grammar=f'root ::= "{word}" " "? [0-9]{{4}}',
        grammar_lazy=True,
        grammar_triggers=[{"type": 1, "value": word}],
    )
    before, _, digits = answer["content"].partition(word)
    assert before == parts[0]
    assert re.fullmatch(" ?[0-9]{4}", digits), answer["content"]
    assert answer["stop_type"] == "eos"
    assert answer["generation_settings"]["grammar_triggers"] == [{"type": 1, "value": word}]


NESTED: dict[str, Any] = {"type": "string"}
for _ in range(150):
    NESTED = {"type": "array", "items": NESTED}
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("not GBNF", {"grammar": "root ::= this is (not valid GBNF"}),
    ("no root", {"grammar": 'rule ::= "a"'}),
    ("blank", {"grammar": "  \n"}),
    ("undefined rule", {"grammar": "root ::= other"}),
    ("deep parentheses", {"grammar": "root ::= " + "(" * 20_000}),
    ("deep, closed", {"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}),
    ("long", {"grammar": 'root ::= "' + "a" * 70_000 + '"'}),
    ("many rules", {"grammar": "".join(f'r{i} ::= "a"\n' for i in range(3000)) + "root ::= r1"}),
    ("many repetitions", {"grammar": 'root ::= "a"{2001}'}),
    ("nested repetitions", {"grammar": 'root ::= (("a" "b"){1000} "c"){1001}'}),
    ("backward repetition", {"grammar": 'root ::= "a"{3,2}'}),
    ("stacked repetitions", {"grammar": 'root ::= "a"' + "*" * 5000}),
    ("unknown token", {"grammar": "root ::= <[99999999]>"}),
    ("empty class", {"grammar": "root ::= [^\\x00-\\U0010FFFF]"}),
    ("NUL", {"grammar": 'root ::= "a\0b"'}),
    ("bad Lark", {"grammar": "%llguidance {}\nstart: ((("}),
    ("bad expression", {"grammar": "%llguidance {}\nstart: /(?=a)/"}),
    ("unknown type", {"json_schema": {"type": "hiccup"}}),
    ("type is a number", {"json_schema": {"type": 123}}),
    ("schema is false", {"json_schema": False}),
    ("missing reference", {"json_schema": {"$ref": "#/nowhere"}}),
    ("remote reference", {"json_schema": {"$ref": "http://127.0.0.1:1/schema.json"}}),
    ("unsatisfiable", {"json_schema": {"type": "number", "minimum": 3, "maximum": 1}}),
    ("not supported", {"json_schema": {"not": {"type": "string"}}}),
    ("look-around", {"json_schema": {"type": "string", "pattern": "^a(?=b)"}}),
    ("lenient", {"json_schema": {"not": {}, "x-guidance": {"lenient": True}}}),
    ("nested schema", {"json_schema": NESTED}),
    ("large schema", {"json_schema": {"enum": ["x" * 300_000]}}),
    ("response_format", {"response_format": {"type": "sound"}}),
    ("schema is a number", {"response_format": {"type": "json_object", "schema": 123}}),
    ("two at once", {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}),
]


def test_hostile_grammars_are_refused_and_the_next_request_is_served(server: Server) -> None:
    for name, fields in HOSTILE:
        started = time.monotonic()
        response = server.post("/completion", {"prompt": PROMPT, "n_predict": 4} | fields)
        seconds = time.monotonic() - started
        assert response.status_code == 400, (name, response.text[:200])
        assert response.json()["error"]["type"] == "invalid_request_error", name
        assert len(response.content) < 4096, name
        assert seconds < patience(5), (name, seconds)
        good = server.complete(**HOT, seed=1, n_predict=8, grammar='root ::= "a"{3}')
        assert good["content"] == "aaa", name


# They compile, and may run into a limit at a token.
HEAVY: list[tuple[str, dict[str, Any]]] = [
    ("recursion", {"json_schema": {"type": "array", "items": {"$ref": "#"}}}),
    ("endless reference", {"json_schema": {"$ref": "#/$defs/a",
                                           "$defs": {"a": {"$ref": "#/$defs/a"}}}}),
    ("ambiguity", {"grammar": "root ::= s\ns ::= (s s | [a-z])+"}),
    ("optional parts", {"grammar": "root ::= " + '"a"? ' * 2000 + '"b"'}),
    ("many alternatives", {"grammar": "root ::= " + " | ".join(f'"{i:05d}"' for i in range(4000))}),
    ("huge pattern", {"json_schema": {"type": "string",
                                      "pattern": "^(((a{1,999}){1,999}){1,999})$"}}),
    ("left recursion", {"grammar": 'root ::= root "a" | "b"'}),
    ("large counts", {"json_schema": {"type": "array", "minItems": 100_000}}),
    ("many properties", {"json_schema": {"type": "object", "properties": {
        f"p{i}": {"type": "string"} for i in range(2000)}}}),
    ("optional properties", {"json_schema": {"type": "object", "additionalProperties": False,
        "properties": {f"p{i}": {"type": ["string", "null"]} for i in range(300)}}}),
    ("long string", {"json_schema": {"type": "string", "maxLength": 10**9}}),
    ("expression", {"grammar": "%llguidance {}\nstart: /(a|aa|aaa)*b{0,500}(c|d)*x{100}/"}),
]  # fmt: skip


def test_heavy_grammars_end_and_do_not_stop_others(server: Server) -> None:
    for name, fields in HEAVY:
        started = time.monotonic()
        response = server.post("/completion", {**HOT, "seed": 2, "n_predict": 20} | fields)
        seconds = time.monotonic() - started
        assert response.status_code in (200, 400), (name, response.text[:200])
        assert seconds < patience(15), (name, seconds)
        assert server.complete(prompt=PROMPT, n_predict=2, ignore_eos=True)["tokens_predicted"] == 2


def test_default_grammar_of_the_command_line() -> None:
    with serving("-t", "1", "-j", '{"enum": ["only", "these"]}') as server:
        assert server.complete(**HOT)["content"] in ('"only"', '"these"')
        assert server.complete(**HOT, grammar='root ::= "mine"')["content"] == "mine"
