"""The grammar of tool calls: what a model must write where a call is forced."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from engine_ext import GrammarTrigger
from server.chat.tools.definitions import may_be_string, split_definitions
from server.chat.tools.offer import Tool
from server.chat.tools.syntax import TAG_BEFORE_TAG, ToolSyntax
from server.errors import invalid_field
from server.grammar.schema import SchemaError, for_llguidance
from server.grammar.spec import GrammarSpec

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
    after: str | None,
    budget: int = -1,
    is_loose: bool = False,
) -> GrammarSpec:
    """llguidance's Lark for one call of these tools, or several where `parallel`.

    `is_loose`: white space at the ends of marks is the model's choice.

    `after`: the text is free until this mark, which ends the model's thoughts, for at most
    `budget` tokens where it is not negative.
    """
    spell = _Spelling(engine, is_loose)
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
    if after is not None:
        rules = rules.replace("start: ", "call_part: ", 1)
        rules += await _thoughts(spell, after, budget, "call_part")
    return GrammarSpec("lark", "%llguidance {}\n" + rules)


async def budget_grammar(
    engine: "Engine", tags: tuple[str, str], budget: int, *, opened: bool
) -> GrammarSpec:
    """Free text, with thoughts of at most `budget` tokens in front. `opened`: they have begun."""
    spell = _Spelling(engine)
    rules = await _thoughts(spell, tags[1], budget, "rest")
    free = "/(.|\\n)*/"
    if not opened:
        start = await spell.of(tags[0])
        rules = rules.replace("start: ", f"start: {start} thinking | plain\nthinking: ", 1)
        # What begins like the tag would be a way around the budget.
        first = "" if start.startswith("<[") else f"[^{re.escape(tags[0][0])}]"
        plain = f"/({first}(.|\\n)*)?/" if first else free
        rules += f"plain: {plain}\n"
    return GrammarSpec("lark", f"%llguidance {{}}\n{rules}rest: {free}\n")


async def _thoughts(spell: "_Spelling", end: str, budget: int, then: str) -> str:
    """Any text up to the mark, which must come: the answer may not end before."""
    mark = await spell.of(end)
    space = "space: /\\n{0,2}/\n"
    if budget == 0:
        return f"start: {mark} space {then}\n{space}"
    limit = f"[max_tokens={budget}]" if budget > 0 else ""
    if limit or mark.startswith("<["):
        return f"start: thoughts {mark} space {then}\nthoughts{limit}: /(.|\\n)*/\n{space}"
    return f"start: thoughts space {then}\nthoughts[suffix={mark}]: /(.|\\n)*/\n{space}"


async def mark_trigger(engine: "Engine", mark: str, *, inside: bool) -> GrammarTrigger:
    """A trigger for a mark: its token where it is one control token, else its text."""
    tokens = await engine.tokenize(mark, add_special=False, parse_special=True)
    if len(tokens) == 1 and _is_control(engine, tokens[0]):
        return GrammarTrigger(token=tokens[0], inside=inside)
    return GrammarTrigger(word=mark.encode(), inside=inside)


def _is_control(engine: "Engine", token: int) -> bool:
    return engine.token_pieces[token] != engine.token_pieces_special[token]


class _Spelling:
    """Marks in Lark: control tokens by their ids, the rest as text."""

    def __init__(self, engine: "Engine", is_loose: bool = False) -> None:
        self._engine = engine
        self.is_loose = is_loose

    async def of(self, mark: str) -> str:
        """One or more terminals; "" for no mark."""
        if not self.is_loose:
            return await self._exactly(mark)
        parts = [await self._exactly(part) for part in TAG_BEFORE_TAG.split(mark.strip())]
        before = "ws" if mark[:1].isspace() else ""
        after = "ws" if mark.strip() and mark[-1:].isspace() else ""
        return " ".join(filter(None, [before, " ws ".join(filter(None, parts)), after]))

    async def _exactly(self, mark: str) -> str:
        if not mark:
            return ""
        tokens = await self._engine.tokenize(mark, add_special=False, parse_special=True)
        parts = []
        for token in tokens:
            if not _is_control(self._engine, token):
                continue
            text = self._engine.token_pieces_special[token].decode(errors="replace")
            before, found, mark = mark.partition(text)
            if not found:
                raise invalid_field("tool_choice", f"{text!r} cannot be forced")
            parts += [_quoted(before)] if before else []
            parts.append(f"<[{token}]>")
        return " ".join([*parts, _quoted(mark)] if mark else parts)


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _json(schema: Any) -> str:
    """A JSON value in the spacing that templates show models; checked and bounded."""
    try:
        text = for_llguidance(orjson.dumps(schema | {"x-guidance": _SPACING}).decode())
    except SchemaError as error:
        raise invalid_field("tools", str(error)) from None
    return f"%json {text}"


def _sections(spell: "_Spelling", syntax: dict[str, str], call: str, parallel: bool) -> str:
    one = " ".join(filter(None, [syntax["call_start"], call, syntax["call_end"]]))
    more = f" (ws {one})*" if parallel else ""
    whole = " ".join(filter(None, [syntax["section_start"], one + more, syntax["section_end"]]))
    return f"start: {whole}\n" + (_SPACE if parallel or spell.is_loose else "")


async def _spelled(spell: _Spelling, syntax: ToolSyntax, *more: str) -> dict[str, str]:
    names = ("section_start", "call_start", "call_end", "section_end", *more)
    return {name: await spell.of(getattr(syntax, name)) for name in names}


async def _json_rules(
    spell: _Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
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
    """A tool's schema; arguments that it does not name are none, unless it says so."""
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
    spell: _Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
) -> str:
    marks = await _spelled(spell, syntax, "id_end", "name_end")
    name_end = marks["name_end"]
    if syntax.name_end.startswith(":0"):
        name_end = f"/:[0-9]{{1,3}}/ {await spell.of(syntax.name_end[2:])}"
    if syntax.id_end:
        name_end = f"{name_end} /[a-zA-Z0-9]{{9}}/ {marks['id_end']}"
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        choices.append(f"{_quoted(tool.name)} {name_end} arguments{i}".replace("  ", " "))
        rules += f"arguments{i}: {_json(_arguments(tool))}\n"
    return _sections(spell, marks, "call", parallel) + f"call: {' | '.join(choices)}\n" + rules


async def _tagged_rules(
    spell: _Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
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
    value_end = _quoted(syntax.value_end.strip() if spell.is_loose else syntax.value_end)
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        parts = [_quoted(tool.name), marks["name_end"]]
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
            head = f"{marks['key_start']} {_quoted(key)} {key_end}"
            rules += f"p{i}_{j}: {head} v{i}_{j}\n"
            rules += _tagged_value(f"{i}_{j}", schema, definitions, value_end)
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
        texts = " | ".join(_quoted(_plain(value)) for value in schema["enum"])
        return f"v{at}: first_line ({texts}) last_line\n"
    if may_be_string(schema, definitions):
        return f"v{at}[suffix={value_end}]: /(.|\\n)*/\n"
    shared = {"$defs": definitions} if definitions else {}
    value = _json(shared | schema if isinstance(schema, dict) else {})
    return f"v{at}: j{at} ending\nj{at}: {value}\n"


async def harmony_call(engine: "Engine", tools: tuple[Tool, ...]) -> GrammarSpec:
    """One call of gpt-oss, from its name on (llama.cpp 0c1e57098 common/parsers/gpt-oss.cpp)."""
    spell = _Spelling(engine)
    channel, form, message = [
        await spell.of(mark) for mark in ("<|channel|>", "<|constrain|>", "<|message|>")
    ]
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        choices.append(f"{_quoted(tool.name)} header arguments{i}")
        rules += f"arguments{i}: {_json(_arguments(tool))}\n"
    rules += (
        f'header: ({channel} channel)? (" " {form}? "json" | {form} "json")? {message}\n'
        'channel: "commentary" | "analysis"\n'
    )
    return GrammarSpec("lark", f"%llguidance {{}}\nstart: {' | '.join(choices)}\n{rules}")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
