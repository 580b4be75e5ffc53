"""Calls that a model begins by itself: free text before the mark, the tools' schemas from it on."""

import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from engine_ext import Engine, EngineConfig
from tests.support.llama_source import llama_source
from tests.support.server import Server, serving
from unpaced.chat.answer.harmony import CALL, is_harmony
from unpaced.chat.answer.parser import AnswerSyntax, ChatParser
from unpaced.chat.renderer import Renderer
from unpaced.chat.templates import ChatTemplates
from unpaced.chat.tools.offer import Tool, read_tools
from unpaced.chat.unasked import unasked_calls
from unpaced.http.errors import ApiError
from unpaced.request.compiled_grammar import compile_grammar
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio

DEMO_MODEL: Final = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
ALLOWED: Final = 0  # TokenMask.Verdict
WEATHER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city"],
}
POINT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"p": {"$ref": "#/$defs/p"}},
    "required": ["p"],
    "$defs": {"p": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}},
}


def function(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters} | more}


OFFERED: Final = [function("get_weather", WEATHER), function("point", POINT), function("noop", {})]
TOOLS: Final = read_tools({"tools": OFFERED}, len(OFFERED)).tools
# One of each form: JSON in tags, an array, a name and JSON, tagged values, values that say their
# type, channels.
TEMPLATES: Final = (
    "Qwen-Qwen3-0.6B",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "deepseek-ai-DeepSeek-V3.1",
    "unsloth-mistral-Devstral-Small-2507",
    "Kimi-K2-Instruct",
    "Qwen3-Coder",
    "GLM-4.6",
    "deepseek-ai-DeepSeek-V3.2",
    "openai-gpt-oss-120b",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(anyio_backend: str) -> AsyncIterator[Engine]:
    del anyio_backend
    async with Engine(EngineConfig(model_path=DEMO_MODEL, n_ctx=128, n_threads=1)) as running:
        yield running


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    shared = Renderer()
    yield shared
    shared.close()


async def answer_syntax(engine: Engine, renderer: Renderer, name: str) -> AnswerSyntax:
    file = llama_source() / "models" / "templates" / f"{name}.jinja"
    templates = ChatTemplates(Settings(chat_template_file=file), renderer)
    await templates.load(engine.model)
    facts = templates.choose(has_tools=True)
    if is_harmony(facts.source):
        return AnswerSyntax(syntax=CALL, tools=TOOLS, max_calls=1, harmony=True)
    tags = None if facts.reasoning is None else (facts.reasoning.start, facts.reasoning.end)
    return AnswerSyntax(reasoning=tags, syntax=facts.tools, tools=TOOLS)


async def walk(engine: Engine, answer: AnswerSyntax, rng: random.Random) -> str:
    """A random text of an answer whose mark has just come, ended where it may be."""
    spec = await unasked_calls(engine, answer)
    assert spec is not None
    assert answer.syntax is not None
    mask = (await compile_grammar(engine, spec)).start()
    pieces = engine.token_pieces_special
    before = "" if answer.harmony else "Hi "
    trigger = spec.triggers[0]
    tokens = await engine.tokenize(before + trigger.word.decode(), add_special=False)
    tokens += [trigger.token] if trigger.token >= 0 else []
    for token in tokens:
        assert all(mask.check(t) == ALLOWED for t in range(0, engine.model.n_vocab, 7))
        mask.accept(token)
    forced: list[int] = []
    for _ in range(1500):
        allowed = [t for t in range(engine.model.n_vocab) if mask.check(t) == ALLOWED]
        ends = engine.model.eog_tokens & set(allowed)
        if ends:
            break
        choices = [token for token in allowed if pieces[token]]
        assert choices, (b"".join(pieces[t] for t in tokens), mask.failure)
        if not forced and len(choices) > 1000 and rng.random() < 0.3:  # within a text: end it
            mark = answer.syntax.value_end.strip() or '"'
            forced = await engine.tokenize(mark, add_special=False)
        token = forced.pop(0) if forced and forced[0] in choices else rng.choice(choices)
        mask.accept(token)
        tokens.append(token)
    assert ends, b"".join(pieces[t] for t in tokens)
    return b"".join(pieces[t] for t in tokens).decode(errors="replace")


@pytest.mark.parametrize("name", TEMPLATES)
async def test_whatever_comes_after_the_mark_is_a_call(
    engine: Engine, renderer: Renderer, name: str
) -> None:
    answer = replace(await answer_syntax(engine, renderer, name), max_calls=1)
    schemas = {tool.name: tool.schema for tool in TOOLS}
    for seed in range(4):
        text = await walk(engine, answer, random.Random(seed))
        parser = ChatParser(answer)
        parser.push(text)
        parser.finish()
        message = parser.message()
        assert message["content"] in ("", "Hi", "Hi "), text
        (call,) = message["tool_calls"]
        called = call["function"]
        closed = schemas[called["name"]] | {"additionalProperties": False}
        jsonschema.validate(json.loads(called["arguments"]), closed)


async def verdicts(engine: Engine, answer: AnswerSyntax, text: str) -> list[bool]:
    """Of the bytes of a text, as tokens: which were free, all tokens allowed."""
    spec = await unasked_calls(engine, answer)
    assert spec is not None
    mask = (await compile_grammar(engine, spec)).start()
    free = []
    for token in await engine.tokenize(text, add_special=False):
        free.append(all(mask.check(t) == ALLOWED for t in range(0, engine.model.n_vocab, 11)))
        if mask.check(token) != ALLOWED:
            break
        mask.accept(token)
    return free


async def test_no_call_begins_within_reasoning(engine: Engine, renderer: Renderer) -> None:
    answer = await answer_syntax(engine, renderer, "Qwen-Qwen3-0.6B")
    call = '<tool_call>\n{"name": "noop"'
    assert all(await verdicts(engine, answer, f"<think>a {call} b</think> c"))
    assert not all(await verdicts(engine, answer, f"<think>a</think>{call}"))
    opened = replace(answer, opens_reasoning=True)
    assert all(await verdicts(engine, opened, f"a {call} b"))
    assert not all(await verdicts(engine, opened, f"a </think>{call}"))


async def test_a_mark_that_goes_on_as_no_call_does_is_text(
    engine: Engine, renderer: Renderer
) -> None:
    """A token that holds the mark's end and something else: the mark was none."""
    answer = await answer_syntax(engine, renderer, "Qwen-Qwen3-0.6B")
    assert answer.syntax is not None
    # The demo model has the token " there": the mark ends within it.
    answer = replace(answer, syntax=replace(answer.syntax, call_start="\nOnce t"))
    assert all(await verdicts(engine, answer, "Once there was a day"))
    assert not all(await verdicts(engine, answer, "Once t{"))


async def test_without_a_mark_nothing_is_forced(engine: Engine, renderer: Renderer) -> None:
    answer = await answer_syntax(engine, renderer, "meta-llama-Llama-3.1-8B-Instruct")
    assert await unasked_calls(engine, answer) is None


async def test_schemas_that_the_compiler_does_not_know(engine: Engine, renderer: Renderer) -> None:
    answer = await answer_syntax(engine, renderer, "Qwen-Qwen3-0.6B")
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    tools = (Tool("odd", "", odd), TOOLS[1])
    spec = await unasked_calls(engine, replace(answer, tools=tools))
    assert spec is not None
    assert '{"const":"odd"},"arguments":{"type":"object"}' in spec.text.replace(
        '"additionalProperties":false,', ""
    )
    assert '"enum":[1,2]' in spec.text  # the other tool keeps its schema
    strict = (TOOLS[1], replace(tools[0], is_strict=True))
    with pytest.raises(ApiError) as raised:
        await unasked_calls(engine, replace(answer, tools=strict))
    assert raised.value.status == 400
    assert raised.value.param == "tools[1].function.parameters"
    assert "uniqueItems" in str(raised.value)


# A template whose calls begin with a word that the demo model writes.
TEMPLATE: Final = """
{%- if tools %}{{ tools | tojson }} {% endif -%}
{%- for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %} was {{
{"name": c.function.name, "arguments": c.function.arguments} | tojson }} end{% endfor %}
{%- endfor %}"""
DAYS: Final = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["city", "days"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("template") / "calls.jinja"
    file.write_text(TEMPLATE)
    with serving("-t", "1", "-c", "2048", "--chat-template-file", str(file)) as running:
        yield running


def body(**more: Any) -> dict[str, Any]:
    story = {"messages": [{"role": "user", "content": "Once upon a time"}], "temperature": 0}
    return story | {"max_tokens": 150, "tools": [function("get_weather", DAYS)]} | more


def test_a_call_in_the_middle_of_a_story(server: Server) -> None:
    free = server.complete("/v1/chat/completions", **body(tools=[]))
    before, found, _ = free["choices"][0]["message"]["content"].partition(" was")
    assert found
    answer = server.complete("/v1/chat/completions", **body(parallel_tool_calls=False))
    choice = answer["choices"][0]
    assert choice["message"]["content"] == before  # the same tokens as without tools
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), DAYS)

    events = server.stream("/v1/chat/completions", **body(parallel_tool_calls=False))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == before
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    text = "".join(piece["function"].get("arguments", "") for piece in pieces)
    assert text == call["function"]["arguments"]


def test_further_calls_may_follow(server: Server) -> None:
    answer = server.complete("/v1/chat/completions", **body(parallel_tool_calls=True))
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert len(calls) > 1
    for call in calls[:-1]:  # the last one is cut by the limit
        jsonschema.validate(json.loads(call["function"]["arguments"]), DAYS)


def test_what_holds_instead(server: Server) -> None:
    for more in (
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
    ):
        answer = server.complete("/v1/chat/completions", **body(**more), verbose=True)
        assert "tool_calls" not in answer["choices"][0]["message"]
        assert answer["__verbose"]["generation_settings"]["grammar_lazy"] is False
    lazy = server.complete("/v1/chat/completions", **body(), verbose=True)
    settings = lazy["__verbose"]["generation_settings"]
    assert settings["grammar_lazy"] is True
    assert settings["grammar_triggers"] == [{"type": 1, "value": "was"}]


def test_strict_is_refused_where_it_cannot_be_held(server: Server) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    good = server.post("/v1/chat/completions", body(tools=[function("odd", odd)]))
    assert good.status_code == 200
    strict = server.post("/v1/chat/completions", body(tools=[function("odd", odd, strict=True)]))
    assert strict.status_code == 400
    assert strict.json()["error"]["param"] == "tools[0].function.parameters"
    wrong = server.post("/v1/chat/completions", body(tools=[function("odd", odd, strict=1)]))
    assert wrong.json()["error"]["param"] == "tools[0].function.strict"
