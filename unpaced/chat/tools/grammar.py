"""The grammar of tool calls: what a model must write where a call is forced."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from unpaced.chat.tools.definitions import may_be_string, split_definitions
from unpaced.chat.tools.offer import Tool
from unpaced.chat.tools.spelling import Spelling, quoted
from unpaced.chat.tools.syntax import ToolSyntax
from unpaced.grammar.schema import SchemaError, for_llguidance
from unpaced.grammar.spec import GrammarSpec
from unpaced.http.errors import invalid_field
from unpaced.request.compiled_grammar import MAX_LARK_BYTES

if TYPE_CHECKING:
    from engine_ext import Engine

_SPACE: Final = "ws: /[ \\n]{0,2}/\n"
_SPACING: Final = {"whitespace_pattern": " ?"}


async def tool_grammar(
    engine: "Engine",
    syntax: ToolSyntax,
    tools: tuple[Tool, ...],
    *,
    parallel: bool,
    lead: str = "",
    is_loose: bool = False,
) -> GrammarSpec:
    """llguidance's Lark for one call of these tools, or several where `parallel`.

    `is_loose`: white space at the ends of marks is the model's choice.

    `lead`: rules that lead from `start` to `answer`, which is the calls; "": nothing comes before.
    """
    spell = Spelling(engine, is_loose=is_loose)
    if is_loose:
        syntax = replace(
            syntax,
            section_start=syntax.section_start.lstrip(),
            call_start=syntax.call_start if syntax.section_start else syntax.call_start.lstrip(),
        )
    if syntax.kind == "json":
        rules = await _json_rules(spell, syntax, tools, parallel)
    elif syntax.kind == "named":
        rules = await _named_rules(spell, syntax, tools, parallel)
    else:
        rules = await _tagged_rules(spell, syntax, tools, parallel)
    if lead:
        rules = lead + rules.replace("start: ", "answer: ", 1)
    return GrammarSpec("lark", "%llguidance {}\n" + rules)


def _json(schema: Any) -> str:
    """A JSON value in the spacing that templates show models; checked and bounded."""
    try:
        text = for_llguidance(orjson.dumps(schema | {"x-guidance": _SPACING}).decode())
    except SchemaError as error:
        raise invalid_field("tools", str(error)) from None
    return f"%json {text}"


async def _pause(rules: str) -> None:
    """Others' turn between two schemas. Raises: ApiError (400) for more than is ever compiled."""
    if len(rules) > MAX_LARK_BYTES:
        raise invalid_field("tools", f"their grammar is longer than {MAX_LARK_BYTES} bytes")
    await asyncio.sleep(0)


def _sections(spell: "Spelling", syntax: dict[str, str], call: str, parallel: bool) -> str:
    one = " ".join(filter(None, [syntax["call_start"], call, syntax["call_end"]]))
    more = f" (ws {one})*" if parallel else ""
    whole = " ".join(filter(None, [syntax["section_start"], one + more, syntax["section_end"]]))
    return f"start: {whole}\n" + (_SPACE if parallel or spell.is_loose else "")


async def _spelled(spell: Spelling, syntax: ToolSyntax, *more: str) -> dict[str, str]:
    names = ("section_start", "call_start", "call_end", "section_end", *more)
    return {name: await spell.of(getattr(syntax, name)) for name in names}


async def _json_rules(
    spell: Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
) -> str:
    schemas: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for i, tool in enumerate(tools):
        arguments, found = split_definitions(_arguments(tool), f"t{i}_")
        schemas.append(_call_schema(syntax, tool, arguments))
        definitions |= found
    shared = {"$defs": definitions} if definitions else {}
    calls = {"anyOf": schemas}
    marks = await _spelled(spell, syntax)
    if syntax.array:
        array = shared | {"type": "array", "items": calls, "minItems": 1}
        return (
            _sections(spell, marks, "calls", False)
            + f"calls: {_json(array if parallel else array | {'maxItems': 1})}\n"
        )
    several = parallel and syntax.trigger != ""
    return _sections(spell, marks, "call", several) + f"call: {_json(shared | calls)}\n"


def _arguments(tool: Tool) -> dict[str, Any]:
    """A tool's schema; it allows no arguments that it does not name, unless it says so."""
    return {"additionalProperties": False} | tool.schema


def _call_schema(syntax: ToolSyntax, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    fields = {syntax.name_key: {"const": tool.name}, syntax.arguments_key: arguments}
    call = _closed_object(fields)
    if not syntax.wrapper:
        return call
    return _closed_object({"type": {"const": "function"}, syntax.wrapper: call})


def _closed_object(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


async def _named_rules(
    spell: Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
) -> str:
    marks = await _spelled(spell, syntax, "id_end", "name_end")
    name_end = marks["name_end"]
    if syntax.name_end.startswith(":0"):
        name_end = f"/:[0-9]{{1,3}}/ {await spell.of(syntax.name_end[2:])}"
    if syntax.id_end:
        name_end = f"{name_end} /[a-zA-Z0-9]{{9}}/ {marks['id_end']}"
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        choices.append(f"{quoted(tool.name)} {name_end} arguments{i}".replace("  ", " "))
        rules += f"arguments{i}: {_json(_arguments(tool))}\n"
        await _pause(rules)
    return _sections(spell, marks, "call", parallel) + f"call: {' | '.join(choices)}\n" + rules


async def _tagged_rules(
    spell: Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
) -> str:
    marks = await _spelled(spell, syntax, "name_end", "key_start", "key_end")
    if "<[" in await spell.of(syntax.value_end):
        raise invalid_field("tool_choice", "this template's calls cannot be forced")
    text_key_end = json_key_end = marks["key_end"]
    if spell.is_loose:  # white space would belong to the text
        text_key_end = await spell.of(syntax.key_end.rstrip())
    if (said := 'string="true"') in syntax.key_end:  # the key's mark says what the value is
        json_key_end = await spell.of(syntax.key_end.replace(said, 'string="false"'))
    first_line = "line? " if spell.is_loose and syntax.key_end.endswith("\n") else ""
    value_end = quoted(syntax.value_end.strip() if spell.is_loose else syntax.value_end)
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        parts = [quoted(tool.name), marks["name_end"]]
        optional = []
        required = tool.schema.get("required") or []
        whole, definitions = split_definitions(tool.schema, "")
        properties = whole.get("properties")
        if not isinstance(properties, dict):
            optional.append(f"p{i}_any")
            head = f"{marks['key_start']} /[A-Za-z0-9_.\\-]+/ {marks['key_end']}"
            rules += f"p{i}_any: {head} v{i}_any\nv{i}_any[suffix={value_end}]: /(.|\\n)*/\n"
            properties = {}
        for j, (key, schema) in enumerate(properties.items()):
            (parts if key in required else optional).append(f"p{i}_{j}")
            key_end = text_key_end if may_be_string(schema, definitions) else json_key_end
            head = f"{marks['key_start']} {quoted(key)} {key_end}"
            rules += f"p{i}_{j}: {head} v{i}_{j}\n"
            rules += _tagged_value(f"{i}_{j}", schema, definitions, value_end)
            await _pause(rules)
        parts += [f"({' | '.join(optional)})*"] if optional else []
        choices.append(" ".join(filter(None, parts)))
    ws = "ws " if spell.is_loose else ""
    last_line = "line? " if spell.is_loose and syntax.value_end.startswith("\n") else ""
    ending = f"ending: {ws}{value_end}\nfirst_line: {first_line or chr(34) * 2}\nline: /\\n/\n"
    ending += f"last_line: {last_line}{value_end}\n"
    sections = _sections(spell, marks, "call", parallel)
    return sections + f"call: {' | '.join(choices)}\n" + rules + ending


def _tagged_value(at: str, schema: Any, definitions: dict[str, Any], value_end: str) -> str:
    """The rules of one value: text as it is where it may be text, else JSON."""
    if isinstance(schema, dict) and "enum" in schema:
        texts = " | ".join(quoted(_plain(value)) for value in schema["enum"])
        return f"v{at}: first_line ({texts}) last_line\n"
    if may_be_string(schema, definitions):
        return f"v{at}[suffix={value_end}]: /(.|\\n)*/\n"
    shared = {"$defs": definitions} if definitions else {}
    value = _json(shared | schema if isinstance(schema, dict) else {})
    return f"v{at}: j{at} ending\nj{at}: {value}\n"


async def harmony_call(engine: "Engine", tools: tuple[Tool, ...]) -> GrammarSpec:
    """One call of gpt-oss, from its name on (llama.cpp 0c1e57098 common/parsers/gpt-oss.cpp)."""
    spell = Spelling(engine)
    channel, form, message = [
        await spell.of(mark) for mark in ("<|channel|>", "<|constrain|>", "<|message|>")
    ]
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        choices.append(f"{quoted(tool.name)} header arguments{i}")
        rules += f"arguments{i}: {_json(_arguments(tool))}\n"
        await _pause(rules)
    rules += (
        f'header: ({channel} channel)? (" " {form}? "json" | {form} "json")? {message}\n'
        'channel: "commentary" | "analysis"\n'
    )
    return GrammarSpec("lark", f"%llguidance {{}}\nstart: {' | '.join(choices)}\n{rules}")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
