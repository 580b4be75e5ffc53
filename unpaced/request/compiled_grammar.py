"""From a specification to a compiled grammar, or a 400 that says what is wrong with it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from engine_ext import EngineBusy, EngineError, Grammar, GrammarError, GrammarPart
from unpaced.grammar.engine_parts import parts_of
from unpaced.grammar.gbnf import parse_gbnf
from unpaced.grammar.gbnf_lark import to_lark, token_texts
from unpaced.grammar.gbnf_tree import GbnfError, Group
from unpaced.grammar.schema import SchemaError, for_llguidance
from unpaced.grammar.spec import GrammarSpec, json_lark
from unpaced.grammar.terminals import with_terminals
from unpaced.http.errors import ApiError, invalid, server_fault, unavailable

if TYPE_CHECKING:
    from engine_ext import Engine, ModelInfo

T = TypeVar("T")

MAX_LARK_BYTES: Final = 262144
_PREFIX: Final = "Failed to initialize samplers: failed to parse grammar"  # llama-server's


async def compile_grammar(engine: "Engine", spec: GrammarSpec) -> Grammar:
    """The grammar of `spec`, for any number of sequences.

    Raises: ApiError, 400 with the compiler's message, 503 where it waits too long to be compiled;
    never a grammar that is weaker than asked.
    """
    try:
        grammar = await _compile(engine, spec)
        if spec.wait is not None:
            grammar = await engine.lazy_grammar(grammar, spec.wait)
    except EngineBusy as error:
        raise unavailable(str(error)) from None
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
        text = await _look(engine, for_llguidance, spec.text)
        if spec.lead:
            return await engine.compile_grammar("lark", json_lark(text, spec.lead))
        return await engine.compile_grammar("json_schema", text)
    if spec.kind == "gbnf":
        return await _compile_gbnf(engine, spec.text)
    if len(spec.text.encode()) > MAX_LARK_BYTES:
        raise GrammarError(f"the grammar is longer than {MAX_LARK_BYTES} bytes")
    return await engine.compile_grammar(spec.kind, spec.text)


async def _look(engine: "Engine", work: Callable[[str], T], text: str) -> T:
    """What `work` makes of a grammar's text, where that holds nobody up."""
    return await engine.look_into_grammar(partial(work, text), len(text))


async def _compile_gbnf(engine: "Engine", text: str) -> Grammar:
    rules = await _look(engine, parse_gbnf, text)
    ids = await _token_ids(engine, sorted(token_texts(rules)))
    convert = partial(_convert, rules, ids, engine.model)
    whole, parts, cut = await engine.look_into_grammar(convert, len(text))
    if cut is not None:
        with suppress(GrammarError):  # its lexer is too large for the compiler's limits
            return await engine.compile_grammar("lark", cut, parts)
    return await engine.compile_grammar("lark", whole, parts)


async def _token_ids(engine: "Engine", names: list[str]) -> dict[str, int]:
    found = await engine.tokenize_all(names, add_special=False, parse_special=True)
    for name, tokens in zip(names, found, strict=True):
        if len(tokens) != 1:
            raise GbnfError(f"invalid token '{name}'")
    return {name: tokens[0] for name, tokens in zip(names, found, strict=True)}


def _convert(
    rules: Mapping[str, Group], ids: dict[str, int], model: "ModelInfo"
) -> tuple[str, list[GrammarPart], str | None]:
    """The rules as Lark, their parts, and the same as Lark with longer terminals if it can be."""
    lark = partial(to_lark, token_ids=ids, n_vocab=model.n_vocab, end_tokens=model.eog_tokens)
    cut = with_terminals(rules)
    return lark(rules), parts_of(rules), None if cut is None else lark(cut)
