"""Calls that the model begins by itself: held to the tools' schemas from their mark on.

Until the mark comes the text is free. As llama-server, which does so for every template whose calls
begin with a mark (llama.cpp 0c1e57098 common/chat-auto-parser-generator.cpp:70-95).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from engine_ext import GrammarError, GrammarTrigger
from unpaced.chat.tools.grammar import harmony_call, tool_grammar
from unpaced.chat.tools.offer import Tool
from unpaced.chat.tools.spelling import mark_trigger
from unpaced.grammar.schema import SchemaError, for_llguidance
from unpaced.grammar.spec import GrammarSpec
from unpaced.http.errors import ApiError, invalid_field
from unpaced.request.compiled_grammar import compile_grammar

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.chat.answer.parser import AnswerSyntax

_ANY_ARGUMENTS: Final[dict[str, Any]] = {"type": "object"}
_HARMONY_PLACES: Final = ("<|channel|>commentary", "<|channel|>analysis", "<|start|>assistant")


async def unasked_calls(engine: "Engine", answer: "AnswerSyntax") -> GrammarSpec | None:
    """The lazy grammar of an answer's calls; None where nothing marks a call or there can be none.

    What looks like a call within reasoning does not count. A schema that the compiler does not know
    lets any arguments come. Raises: ApiError, 400 that names the tool if that one is strict.
    """
    if answer.syntax is None or not answer.syntax.trigger:
        return None
    spec = await _grammar(engine, answer, answer.tools)
    if spec is None:
        held = tuple([await _held(engine, tool, i) for i, tool in enumerate(answer.tools)])
        spec = await _grammar(engine, answer, held)
    if spec is None:
        return None
    if answer.harmony:
        words = (f"{place} to=functions." for place in _HARMONY_PLACES)
        triggers = tuple(GrammarTrigger(word=word.encode(), inside=False) for word in words)
        return replace(spec, triggers=triggers, may_resume=True)
    return replace(
        spec,
        triggers=(await mark_trigger(engine, answer.syntax.first_tag, inside=True),),
        quiet=answer.reasoning or ("", ""),
        is_quiet=answer.reasoning is not None and answer.opens_reasoning,
        may_resume=True,
    )


async def _grammar(
    engine: "Engine", answer: "AnswerSyntax", tools: tuple[Tool, ...]
) -> GrammarSpec | None:
    assert answer.syntax is not None
    parallel = answer.max_calls != 1
    try:
        if answer.harmony:
            spec = await harmony_call(engine, tools)
        else:
            spec = await tool_grammar(
                engine, answer.syntax, tools, parallel=parallel, is_loose=True
            )
        await compile_grammar(engine, spec)
    except ApiError as error:
        if error.status != 400:
            raise
        return None
    return spec


async def _held(engine: "Engine", tool: Tool, i: int) -> Tool:
    """The tool, with any arguments where the compiler does not know its schema."""
    try:
        schema = for_llguidance(GrammarSpec.of_schema(tool.schema).text)
        await engine.compile_grammar("json_schema", schema)
    except (SchemaError, GrammarError) as error:
        if tool.is_strict:
            raise invalid_field(f"tools[{i}].function.parameters", str(error)) from None
        return replace(tool, parameters=_ANY_ARGUMENTS)
    return tool
