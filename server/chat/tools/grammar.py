"""The grammar of tool calls: what a model must write where a call is forced."""

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from engine_ext import GrammarTrigger
from server.chat.tools.definitions import split_definitions
from server.chat.tools.offer import Tool
from server.chat.tools.syntax import ToolSyntax
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
) -> GrammarSpec:
    """llguidance's Lark for one call of these tools, or several where `parallel`.

    `after`: the text is free until this mark, which ends the model's thoughts, for at most
    `budget` tokens where it is not negative.
    """
    spell = _Spelling(engine)
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

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def of(self, mark: str) -> str:
        """One or more terminals; "" for no mark."""
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


def _sections(syntax: dict[str, str], call: str, parallel: bool) -> str:
    one = " ".join(filter(None, [syntax["call_start"], call, syntax["call_end"]]))
    more = f" (ws {one})*" if parallel else ""
    whole = " ".join(filter(None, [syntax["section_start"], one + more, syntax["section_end"]]))
    return f"start: {whole}\n" + (_SPACE if parallel else "")


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
            _sections(marks, "calls", False)
            + f"calls: {_json(array if parallel else array | {'maxItems': 1})}\n"
        )
    several = parallel and syntax.trigger != ""
    return _sections(marks, "call", several) + f"call: {_json(shared | calls)}\n"


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
    return _sections(marks, "call", parallel) + f"call: {' | '.join(choices)}\n" + rules


async def _tagged_rules(
    spell: _Spelling, syntax: ToolSyntax, tools: tuple[Tool, ...], parallel: bool
) -> str:
    marks = await _spelled(spell, syntax, "name_end", "key_start", "key_end")
    if "<[" in await spell.of(syntax.value_end):
        raise invalid_field("tool_choice", "this template's calls cannot be forced")
    choices, rules = [], ""
    for i, tool in enumerate(tools):
        parts = [_quoted(tool.name), marks["name_end"]]
        required = tool.schema.get("required") or []
        whole, definitions = split_definitions(tool.schema, "")
        shared = {"$defs": definitions} if definitions else {}
        for j, (key, schema) in enumerate((whole.get("properties") or {}).items()):
            parts.append(f"p{i}_{j}" if key in required else f"p{i}_{j}?")
            head = f"{marks['key_start']} {_quoted(key)} {marks['key_end']}"
            rules += f"p{i}_{j}: {head} v{i}_{j}\n"
            if isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema:
                rules += f"v{i}_{j}[suffix={_quoted(syntax.value_end)}]: /(.|\\n)*/\n"
            elif isinstance(schema, dict) and "enum" in schema:
                texts = " | ".join(_quoted(_plain(value)) for value in schema["enum"])
                rules += f"v{i}_{j}: ({texts}) {_quoted(syntax.value_end)}\n"
            else:
                rules += f"v{i}_{j}: j{i}_{j} {_quoted(syntax.value_end)}\n"
                rules += (
                    f"j{i}_{j}: {_json(shared | schema if isinstance(schema, dict) else schema)}\n"
                )
        choices.append(" ".join(filter(None, parts)))
    return _sections(marks, "call", parallel) + f"call: {' | '.join(choices)}\n" + rules


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
