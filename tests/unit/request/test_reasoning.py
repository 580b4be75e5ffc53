"""When reasoning must end: from a request's fields to the engine's tokens."""

from typing import Any

import pytest

from tests.support.llama_source import llama_source
from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.chat.reasoning_ends import reasoning_ends
from unpaced.chat.templates import ReasoningTags
from unpaced.request.reasoning import (
    Reasoning,
    read_chat_reasoning,
    read_reasoning,
    reasoning_budget,
)
from unpaced.schemas.completion import parse_completion

pytestmark = pytest.mark.anyio

TAGS = {"reasoning_budget_start_tag": "<t>", "reasoning_budget_end_tags": ["</t>", "|"]}
HELLO = [{"role": "user", "content": "Hi"}]
SHOWN = "{% for m in messages %}{{ m.content }}<think>a</think>{% endfor %}"
OPENED = SHOWN + "{% if add_generation_prompt %}<think>\n{% endif %}"


async def budget_of(path: str, body: dict[str, Any], **settings: Any) -> Any:
    """The engine's budget for a request that must be taken."""
    engine = FakeEngine(n_ctx=1024)
    engine.answer = b"a"
    request = await post(make_app(engine, **settings), path, body).done()
    assert request.status == 200, request.json
    return engine.sequences[0].request.reasoning_budget


def tokens(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


async def test_a_completion_names_its_tags() -> None:
    body = TAGS | {"prompt": "a", "reasoning_budget_tokens": 7, "generation_prompt": "x<t>y"}
    budget = await budget_of("/completion", body)
    assert (budget.start, budget.n_tokens) == (tokens("<t>"), 7)
    assert budget.ends == (tokens("</t>"), tokens("|"))
    assert budget.forced == tokens("</t>")
    assert budget.prompt == tokens("x<t>y")
    assert not budget.suspends_grammar
    body |= {"reasoning_budget_message": "enough", "reasoning_budget_end_tag": "ignored"}
    assert (await budget_of("/v1/completions", body)).forced == tokens("enough</t>")
    single = {"reasoning_budget_start_tag": "<t>", "reasoning_budget_end_tag": "</t>"}
    budget = await budget_of("/completion", single | {"prompt": "a", "reasoning_control": True})
    assert (budget.ends, budget.n_tokens) == ((tokens("</t>"),), -1)


async def test_nothing_watches_reasoning_that_nothing_ends() -> None:
    assert await budget_of("/completion", TAGS | {"prompt": "a"}) is None
    chat = {"messages": HELLO, "reasoning_budget_message": "enough"}
    assert await budget_of("/v1/chat/completions", chat, chat_template=OPENED) is None


@pytest.mark.parametrize("tags", [{}, {"reasoning_budget_start_tag": "<t>"}, TAGS | {
    "reasoning_budget_end_tags": [""]}])  # fmt: skip
async def test_a_budget_without_tags_is_refused_where_no_template_has_them(
    tags: dict[str, Any],
) -> None:
    for field, value in (("reasoning_budget_tokens", 0), ("reasoning_control", True)):
        body = tags | {"prompt": "a", field: value}
        request = await post(make_app(FakeEngine()), "/completion", body).done()
        assert (request.status, request.json["error"]["param"]) == (400, field)
    # A chat's template may have none: then there is no reasoning to end.
    plain = {"messages": HELLO, "reasoning_budget_tokens": 0, "reasoning_control": True}
    assert await budget_of("/v1/chat/completions", plain | tags) is None


async def test_a_schema_does_not_begin_within_the_prompt() -> None:
    body = {"prompt": "a", "json_schema": {}, "generation_prompt": "{"}
    request = await post(make_app(FakeEngine()), "/completion", body).done()
    assert (request.status, request.json["error"]["param"]) == (400, "generation_prompt")


async def test_a_chats_template_names_the_tags() -> None:
    body = TAGS | {"messages": HELLO, "reasoning_budget_tokens": 3}
    path = "/v1/chat/completions"
    budget = await budget_of(path, body, chat_template=OPENED)
    assert (budget.start, budget.ends) == (tokens("<think>"), (tokens("</think>"),))
    assert budget.prompt == tokens("<think>\n")
    budget = await budget_of(path, body, chat_template=SHOWN)
    assert budget.prompt == ()
    begun = [*HELLO, {"role": "assistant", "content": "", "reasoning_content": "I"}]
    budget = await budget_of(path, body | {"messages": begun}, chat_template=SHOWN)
    assert budget.prompt == tokens("<think>I")


async def test_reasoning_that_the_prompt_has_ended_is_content_where_none_is_told_apart() -> None:
    engine = FakeEngine(n_ctx=1024)
    engine.answer = b"Hi"
    closed = OPENED.replace("<think>\n{% endif", "<think>\n\n</think>\n\n{% endif")
    app = make_app(engine, chat_template=closed)
    for form, content in (("none", "<think>\n\n</think>\n\nHi"), ("deepseek", "Hi")):
        body = {"messages": HELLO, "reasoning_format": form}
        answer = (await post(app, "/v1/chat/completions", body).done()).json
        assert answer["choices"][0]["message"]["content"] == content


async def test_the_command_line_has_defaults_that_a_request_replaces() -> None:
    settings = {
        "chat_template": OPENED,
        "reasoning_budget": 4,
        "reasoning_budget_message": "enough",
    }
    path, chat = "/v1/chat/completions", {"messages": HELLO}
    budget = await budget_of(path, chat, **settings)
    assert (budget.n_tokens, budget.forced) == (4, tokens("enough</think>"))
    own = {"thinking_budget_tokens": 9, "reasoning_budget_message": ""}
    budget = await budget_of(path, chat | own, **settings)
    assert (budget.n_tokens, budget.forced) == (9, tokens("</think>"))
    # As in llama-server the first name that is there counts, and -1 is the server's.
    own = {"reasoning_budget_tokens": -1, "thinking_budget_tokens": 9}
    assert (await budget_of(path, chat | own, **settings)).n_tokens == 4
    assert await budget_of("/completion", {"prompt": "a"}, **settings) is None


async def test_a_lazy_grammar_does_not_see_reasoning() -> None:
    lazy = {
        "prompt": "a",
        "grammar": 'root ::= "a"',
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 1, "value": "xy"}],
    }
    budget = await budget_of("/completion", TAGS | lazy)
    assert (budget.n_tokens, budget.suspends_grammar) == (-1, True)
    assert await budget_of("/completion", lazy) is None
    strict = TAGS | {"prompt": "a", "grammar": 'root ::= "a"', "reasoning_budget_tokens": 1}
    assert not (await budget_of("/completion", strict)).suspends_grammar


class MergingEngine(FakeEngine):
    """Spells a tag's end and a line break with one token, and puts a space before words."""

    async def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        found = await super().tokenize(
            text.replace(">\n", "\x01"), add_special=add_special, parse_special=parse_special
        )
        return [32, *found] if text[:1].isalpha() else found


async def test_a_tag_that_the_tokens_of_the_prompt_do_not_show() -> None:
    engine: Any = MergingEngine()
    reasoning = Reasoning("<t>", ("</t>",), 3, begun="<t>\n", is_tag_begun=True)
    budget = await reasoning_budget(engine, reasoning, has_lazy_grammar=False)
    assert budget is not None
    assert budget.prompt == tokens("<t>\n")
    reasoning = Reasoning("<t>", ("</t>",), 3, begun="a<t>")
    budget = await reasoning_budget(engine, reasoning, has_lazy_grammar=False)
    assert budget is not None
    assert budget.prompt == tokens("a<t>")  # not the space that is the tokeniser's own


def test_tags_in_a_chat_without_a_templates_are_the_clients() -> None:
    body = parse_completion(TAGS | {"prompt": "a", "reasoning_budget_tokens": 1})
    assert read_chat_reasoning(body) == read_reasoning(body)
    assert read_chat_reasoning(parse_completion({"prompt": "a", "reasoning_control": True})) is None


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        ("Qwen-Qwen3-0.6B", ("</think>",)),
        ("Qwen3.5-4B", ("\n</think>", "</think>", "<tool_call>")),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("\n</think>", "</think>", "<tool_call>")),
        ("inclusionai-ling-3.0-flash", ("</think>", "<tool_call>")),
        ("deepseek-ai-DeepSeek-V3.2", ("</think>", "<\uff5cDSML\uff5cfunction_calls>")),
        ("deepseek-ai-DeepSeek-V4", ("</think>", "<\uff5cDSML\uff5ctool_calls>")),
    ],
)
def test_what_else_ends_reasoning_is_the_templates(template: str, ends: tuple[str, ...]) -> None:
    source = (llama_source() / "models" / "templates" / f"{template}.jinja").read_text()
    tags = ReasoningTags("<think>", "</think>", "<think>", "</think>")
    assert reasoning_ends(source, tags) == ends
    other = ReasoningTags("[THINK]", "[/THINK]", "[THINK]", "[/THINK]")
    assert reasoning_ends(source, other) == ("[/THINK]",)
