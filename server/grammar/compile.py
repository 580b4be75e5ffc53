"""From a specification to a compiled grammar, or a 400 that says what is wrong with it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from engine_ext import EngineError, Grammar, GrammarError
from server.errors import ApiError, invalid, server_fault
from server.grammar.gbnf import parse_gbnf
from server.grammar.gbnf_lark import to_lark, token_texts
from server.grammar.gbnf_tree import GbnfError, Group
from server.grammar.places import parts_of
from server.grammar.schema import SchemaError, for_llguidance
from server.grammar.spec import GrammarSpec, json_lark
from server.grammar.terminals import with_terminals

if TYPE_CHECKING:
    from engine_ext import Engine
    from server.state import ServerState

TIMEOUT_S: Final = 10.0
MAX_LARK_BYTES: Final = 262144
_PREFIX: Final = "Failed to initialize samplers: failed to parse grammar"  # llama-server's


async def compile_grammar(state: "ServerState", spec: GrammarSpec) -> Grammar:
    """The grammar of `spec`, for any number of sequences.

    Raises: ApiError, 400 with the compiler's message; never a grammar that is weaker than asked.
    """
    return await compile_for(state.engine, spec)


async def compile_for(engine: "Engine", spec: GrammarSpec) -> Grammar:
    """As `compile_grammar`, for an engine that is ready."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            grammar = await _compile(engine, spec)
            if spec.wait is not None:
                grammar = await engine.lazy_grammar(grammar, spec.wait)
    except TimeoutError:
        raise _refusal(spec, f"it takes more than {TIMEOUT_S:.0f} s to compile") from None
    except (GbnfError, SchemaError, GrammarError) as error:
        raise _refusal(spec, str(error)) from None
    except EngineError as error:
        raise server_fault(str(error)) from error
    return grammar


def _refusal(spec: GrammarSpec, reason: str) -> ApiError:
    if spec.kind == "json_schema":
        return invalid(f'"json_schema": {reason}', param="json_schema")
    return invalid(f"{_PREFIX}: {reason}", param="grammar")


async def _compile(engine: "Engine", spec: GrammarSpec) -> Grammar:
    if spec.kind == "json_schema":
        text = await asyncio.to_thread(for_llguidance, spec.text)
        if spec.lead:
            return await engine.compile_grammar("lark", json_lark(text, spec.lead))
        return await engine.compile_grammar("json_schema", text)
    if spec.kind == "gbnf":
        return await _compile_gbnf(engine, spec.text)
    if len(spec.text.encode()) > MAX_LARK_BYTES:
        raise GrammarError(f"the grammar is longer than {MAX_LARK_BYTES} bytes")
    return await engine.compile_grammar(spec.kind, spec.text)


async def _compile_gbnf(engine: "Engine", text: str) -> Grammar:
    rules = await asyncio.to_thread(parse_gbnf, text)
    ids: dict[str, int] = {}
    for name in sorted(token_texts(rules)):
        tokens = await engine.tokenize(name, add_special=False, parse_special=True)
        if len(tokens) != 1:
            raise GbnfError(f"invalid token '{name}'")
        ids[name] = tokens[0]
    model = engine.model

    def convert(rules: Mapping[str, Group]) -> str:
        return to_lark(rules, ids, n_vocab=model.n_vocab, end_tokens=model.eog_tokens)

    lark = await asyncio.to_thread(convert, rules)
    parts = await asyncio.to_thread(parts_of, rules)
    cut = await asyncio.to_thread(with_terminals, rules)
    if cut is not None:
        with suppress(GrammarError):  # its lexer is too large for the compiler's limits
            return await engine.compile_grammar(
                "lark", await asyncio.to_thread(convert, cut), parts
            )
    return await engine.compile_grammar("lark", lark, parts)
