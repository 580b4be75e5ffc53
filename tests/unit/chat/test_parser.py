"""Answers to messages: however the text is cut, the message is the same and nothing is lost."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpaced.chat.answer.delta import ChatDelta
from unpaced.chat.answer.parser import AnswerSyntax, ChatParser
from unpaced.chat.tools.offer import Tool
from unpaced.chat.tools.syntax import JSON_CALL, ToolSyntax

WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
TOOLS = (WEATHER, Tool("noop", "", {}))
HERMES = ToolSyntax(kind="json", call_start="<tool_call>\n", call_end="\n</tool_call>")
LLAMA = ToolSyntax(kind="json", arguments_key="parameters")
MISTRAL = ToolSyntax(kind="json", section_start="[TOOL_CALLS]", array=True)
NAMED = ToolSyntax(
    kind="named",
    section_start="<|calls|>",
    call_start="<|call|>function<|sep|>",
    name_end="\n```json\n",
    call_end="\n```<|end|>",
    section_end="<|done|>",
)
FUNCTION = ToolSyntax(kind="named", call_start="<function=", name_end=">", call_end="</function>")
CODER = ToolSyntax(
    kind="tagged",
    call_start="<tool_call>\n<function=",
    name_end=">\n",
    key_start="<parameter=",
    key_end=">\n",
    value_end="\n</parameter>\n",
    call_end="</function>\n</tool_call>",
)
CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}'
THINK = ("<think>", "</think>")


def parse(pieces: Sequence[str], syntax: AnswerSyntax) -> tuple[dict[str, Any], list[ChatDelta]]:
    """The message, and every delta."""
    ids = itertools.count()
    parser = ChatParser(syntax, lambda: f"id{next(ids)}")
    deltas: list[ChatDelta] = []
    for piece in pieces:
        deltas += parser.push(piece)
    deltas += parser.finish()
    return parser.message(), deltas


def joined(deltas: Sequence[ChatDelta]) -> dict[str, Any]:
    """The message that a client builds of deltas."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        assert bool(delta.content) + bool(delta.reasoning) + bool(delta.tool_calls) == 1
        message["content"] += delta.content
        if delta.reasoning:
            message["reasoning_content"] = message.get("reasoning_content", "") + delta.reasoning
        for piece in delta.tool_calls:
            if piece.index == len(calls):
                assert piece.id and piece.name
                function = {"name": piece.name, "arguments": ""}
                calls.append({"type": "function", "function": function, "id": piece.id})
            else:
                assert piece.index == len(calls) - 1 and not piece.name
            calls[piece.index]["function"]["arguments"] += piece.arguments
    return message | ({"tool_calls": calls} if calls else {})


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """Name and decoded arguments of every call."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", [])
    ]


PARIS = ("get_weather", {"city": "Paris", "days": 2})
ANSWERS = [
    ("Hello, world.", AnswerSyntax(), "Hello, world.", "", []),
    ("<think>\nhm\n</think>\n\nYes.", AnswerSyntax(THINK), "Yes.", "hm", []),
    ("  <think>hm</think>Yes.", AnswerSyntax(THINK), "Yes.", "hm", []),
    ("hm\n</think>\nYes.", AnswerSyntax(THINK, opens_reasoning=True), "Yes.", "hm", []),
    ("<think>never ends", AnswerSyntax(THINK), "", "never ends", []),
    (" <thing> is no tag", AnswerSyntax(THINK), " <thing> is no tag", "", []),
    ("a <think>b</think>", AnswerSyntax(THINK), "a <think>b</think>", "", []),
    (
        "<think>hm</think> Yes.",
        AnswerSyntax(THINK, reasoning_format="none"),
        "<think>hm</think> Yes.",
        "",
        [],
    ),
    (
        "<think>hm</think> Yes.",
        AnswerSyntax(THINK, reasoning_format="deepseek-legacy"),
        "<think>hm</think> Yes.",
        "hm",
        [],
    ),
    (f"<tool_call>\n{CALL}\n</tool_call>", AnswerSyntax(None, syntax=HERMES), "", "", [PARIS]),
    (
        f"<think>a</think>Let me see.\n<tool_call>{CALL}</tool_call>\n"
        '<tool_call>{"name": "noop", "arguments": {}}</tool_call>\n',
        AnswerSyntax(THINK, syntax=HERMES),
        "Let me see.",
        "a",
        [PARIS, ("noop", {})],
    ),
    (
        '{"type": "function", "name": "get_weather", "parameters": {"city": "a\\"}"}}',
        AnswerSyntax(None, syntax=LLAMA),
        "",
        "",
        [("get_weather", {"city": 'a"}'})],
    ),
    (
        '{"name": "noop", "parameters": {}}; {"name": "noop", "parameters": {}}',
        AnswerSyntax(None, syntax=LLAMA),
        "",
        "",
        [("noop", {}), ("noop", {})],
    ),
    (
        f'[TOOL_CALLS][{CALL}, {{"arguments": {{}}, "name": "noop", "id": "x"}}]',
        AnswerSyntax(None, syntax=MISTRAL),
        "",
        "",
        [PARIS, ("noop", {})],
    ),
    (
        "Sure.<|calls|><|call|>function<|sep|>get_weather\n```json\n"
        '{"city": "Paris", "days": 2}\n```<|end|>\n<|call|>function<|sep|>noop\n```json\n{}\n```'
        "<|end|><|done|>",
        AnswerSyntax(None, syntax=NAMED),
        "Sure.",
        "",
        [PARIS, ("noop", {})],
    ),
    (
        '<function=get_weather>{"city": "Paris", "days": 2}</function>',
        AnswerSyntax(None, syntax=FUNCTION),
        "",
        "",
        [PARIS],
    ),
    (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        AnswerSyntax(None, syntax=CODER),
        "",
        "",
        [PARIS],
    ),
    (
        '{"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}',
        AnswerSyntax(None, syntax=JSON_CALL),
        "",
        "",
        [("get_weather", {"city": "Rome"})],
    ),
    (
        '{"name": "noop", "arguments": {"text": "two\nlines"}}',
        AnswerSyntax(None, syntax=JSON_CALL),
        "",
        "",
        [("noop", {"text": "two\nlines"})],
    ),
]  # fmt: skip


HARMONY = AnswerSyntax(tools=TOOLS, harmony=True)
CALLS = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
HARMONIES = [
    ("plain", "plain", "", []),
    ("<|channel|>final<|message|>Hi <there>", "Hi <there>", "", []),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "Yes.",
        "hm",
        [],
    ),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant"
        f'{CALLS}{{"city": "Paris", "days": 2}}',
        "Let me see.",
        "hm",
        [PARIS],
    ),
    (
        "<|start|>assistant to=functions.noop<|channel|>commentary json<|message|>{}",
        "",
        "",
        [("noop", {})],
    ),
    ("<|channel|>analysis", "<|channel|>analysis", "", []),
]


def test_a_thought_that_the_client_began_goes_on() -> None:
    syntax = AnswerSyntax(harmony=True, opens_reasoning=True)
    text = "more<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    message, _ = parse([text], syntax)
    assert (message["reasoning_content"], message["content"]) == ("more", "Yes.")


@pytest.mark.parametrize(("text", "content", "reasoning", "calls"), HARMONIES)
def test_channels_are_taken_apart(
    text: str, content: str, reasoning: str, calls: list[Any]
) -> None:
    message, deltas = parse([text], HARMONY)
    assert message["content"] == content
    assert message.get("reasoning_content", "") == reasoning
    assert calls_of(message) == calls
    assert joined(deltas) == message
    assert parse(list(text), HARMONY)[0] == message


def with_tools(syntax: AnswerSyntax) -> AnswerSyntax:
    return AnswerSyntax(
        syntax.reasoning,
        syntax.opens_reasoning,
        syntax.reasoning_format,
        syntax.syntax,
        TOOLS if syntax.syntax else (),
        syntax.max_calls,
    )


@pytest.mark.parametrize(("text", "syntax", "content", "reasoning", "calls"), ANSWERS)
def test_an_answer_is_read(
    text: str, syntax: AnswerSyntax, content: str, reasoning: str, calls: list[Any]
) -> None:
    syntax = with_tools(syntax)
    message, deltas = parse([text], syntax)
    assert message["content"] == content
    assert message.get("reasoning_content", "") == reasoning
    assert calls_of(message) == calls
    assert joined(deltas) == message
    one_by_one, deltas = parse(list(text), syntax)
    assert one_by_one == message
    assert joined(deltas) == message


# What llama-server answers where a grammar forces the text, with the template of Qwen 3 (which has
# line breaks after its tags) and of DeepSeek V3.1 (none, and the prompt opens the reasoning).
SPACES = AnswerSyntax(THINK, spacing=("\n", "\n\n"))
NO_SPACES = AnswerSyntax(THINK, opens_reasoning=True, spacing=("", ""))
ENDED = AnswerSyntax(THINK, ends_reasoning=True, spacing=("\n", "\n\n"))
SPACED: list[tuple[AnswerSyntax, str, str, str]] = [
    (SPACES, " Hello ", "Hello ", ""),
    (SPACES, "\nHello\n\n", "Hello\n\n", ""),
    (SPACES, "<think>\na\n</think>\n\nb\n", "b\n", "a\n"),
    (SPACES, "<think> a </think> b ", " b ", " a "),
    (SPACES, "<think>a\n\nb\n</think>c\n", "c\n", "a\n\nb\n"),
    (SPACES, "<think>\n a</think>\tb", "\tb", " a"),
    (SPACES, "<think>\n\n</think>\n\nb", "b", ""),
    (SPACES, "<think></think>b", "b", ""),
    (SPACES, "\n<think>a</think>b", "b", "a"),
    (SPACES, "<think>\na \n", "", "a \n"),
    (SPACES, "x\n<think>\na\n</think>\ny", "x\n<think>\na\n</think>\ny", ""),
    (NO_SPACES, "\na\n</think>\n\nb\n", "\n\nb\n", "\na\n"),
    (NO_SPACES, " a </think> b ", " b ", " a "),
    (NO_SPACES, "\n\n</think>\n\nb", "\n\nb", ""),
    (NO_SPACES, "\na", "", "\na"),
    (ENDED, "<think>\na\n</think>\n\nb\n", "<think>\na\n</think>\n\nb\n", ""),
    (ENDED, " <think>a", " <think>a", ""),
]


@pytest.mark.parametrize(("syntax", "text", "content", "reasoning"), SPACED)
def test_white_space_around_reasoning_is_llama_servers(
    syntax: AnswerSyntax, text: str, content: str, reasoning: str
) -> None:
    for pieces in ([text], list(text)):
        message, deltas = parse(pieces, syntax)
        assert (message["content"], message.get("reasoning_content", "")) == (content, reasoning)
        assert joined(deltas) == message


def test_what_the_prompt_holds_comes_first() -> None:
    syntax = AnswerSyntax(content_so_far="Once", reasoning_so_far="hm")
    message, deltas = parse([" upon", " a time"], syntax)
    assert message == {
        "role": "assistant",
        "content": "Once upon a time",
        "reasoning_content": "hm",
    }
    assert [delta.content for delta in deltas] == ["", "Once upon", " a time"]
    message, deltas = parse([" upon"], replace(syntax, streams_so_far=False))
    assert message["content"] == "Once upon"
    assert [(delta.reasoning, delta.content) for delta in deltas] == [("", " upon")]
    message, deltas = parse([], AnswerSyntax(content_so_far="Once"))
    assert (message["content"], len(deltas)) == ("Once", 1)


def test_arguments_are_streamed() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    syntax = AnswerSyntax(None, syntax=HERMES, tools=TOOLS)
    parser = ChatParser(syntax, lambda: "id")
    shown = "".join(
        call.arguments
        for character in text[: text.index("ris")]
        for delta in parser.push(character)
        for call in delta.tool_calls
    )
    assert shown == '{"city": "Pa'


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> and more',
        '<tool_call>{"nme": "noop"}</tool_call>',
        "text\n  <tool_call>\nnot JSON",
        '<tool_call>{"name": "noop"',
        "a <tool_call",
        "<tool_call>",
    ],
)
def test_what_only_looks_like_a_call_is_content(text: str) -> None:
    syntax = AnswerSyntax(None, syntax=HERMES, tools=TOOLS)
    for pieces in ([text], list(text)):
        message, deltas = parse(pieces, syntax)
        assert message == {"role": "assistant", "content": text}
        assert joined(deltas) == message


def test_a_call_after_a_broken_one_counts() -> None:
    syntax = AnswerSyntax(None, syntax=HERMES, tools=TOOLS)
    message, _ = parse([f"<tool_call>oops</tool_call><tool_call>{CALL}</tool_call>"], syntax)
    assert message["content"] == "<tool_call>oops</tool_call>"
    assert calls_of(message) == [PARIS]


def test_arguments_that_break_off_keep_what_was_streamed() -> None:
    syntax = AnswerSyntax(None, syntax=HERMES, tools=TOOLS)
    message, _ = parse(['<tool_call>{"name": "noop", "arguments": {"a": tru, "b": 1}}'], syntax)
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": '
    assert message["content"] == 'tru, "b": 1}}'


def test_one_call_where_only_one_is_allowed() -> None:
    syntax = AnswerSyntax(None, syntax=HERMES, tools=TOOLS, max_calls=1)
    second = '<tool_call>{"name": "noop", "arguments": {}}</tool_call>'
    message, _ = parse([f"<tool_call>{CALL}</tool_call>{second}"], syntax)
    assert calls_of(message) == [PARIS]
    assert message["content"] == second


SYNTAXES = [
    HARMONY,
    AnswerSyntax(),
    AnswerSyntax(THINK),
    AnswerSyntax(THINK, opens_reasoning=True),
    *(AnswerSyntax(THINK, syntax=s, tools=TOOLS) for s in (HERMES, LLAMA, MISTRAL, NAMED, CODER)),
    AnswerSyntax(None, syntax=HERMES, tools=TOOLS, max_calls=1),
]
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", "{", "}", "[", "]", ",", ";",
    '"name"', '"arguments"', '"parameters"', ": ", '"get_weather"', '"noop"', "{}", "text", "<",
    "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "analysis", "to=functions.noop",
    "[TOOL_CALLS]", "<|calls|>", "<|call|>function<|sep|>", "noop", "```json", "```<|end|>",
    "<function=", ">", "<parameter=", "city", "</parameter>", "</function>", "12", "tru", "\\", '"',
    CALL, '{"name": "noop", "parameters": {"a": [1, {"b": "c\\n"}]}}',
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=14),
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from(SYNTAXES),
)
def test_any_cut_gives_the_same_message(
    fragments: list[str], cuts: list[int], syntax: AnswerSyntax
) -> None:
    text = "".join(fragments)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole, deltas = parse([text], syntax)
    assert joined(deltas) == whole
    for other in (pieces, list(text)):
        message, deltas = parse(other, syntax)
        assert message == whole
        assert joined(deltas) == message
