"""Prompts of seventy well-known templates beside llama-server's, and templates that mean harm."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_cases import CHAT_CASES
from tests.support.llama_source import llama_source
from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.chat.messages import read_messages
from unpaced.chat.options import read_options
from unpaced.chat.prompt import render_prompt
from unpaced.chat.renderer import Renderer
from unpaced.chat.templates import ChatTemplates
from unpaced.chat.tools.offer import read_tools
from unpaced.http.errors import ApiError
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio
FOLDER = Path(__file__).parent
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def rows(name: str) -> list[list[str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def renderer(anyio_backend: str) -> AsyncIterator[Renderer]:
    del anyio_backend
    shared = Renderer()
    yield shared
    shared.close()


async def loaded(renderer: Renderer, **settings: Any) -> tuple[ChatTemplates, Settings]:
    chosen = Settings(**settings)
    templates = ChatTemplates(chosen, renderer)
    await templates.load(FakeEngine().model)
    return templates, chosen


async def prompt_of(templates: ChatTemplates, settings: Settings, body: dict[str, Any]) -> str:
    messages, offer = read_messages(body), read_tools(body, settings.max_tools)
    facts = templates.choose(has_tools=bool(offer.tools))
    options = read_options(body, messages, settings, facts)
    model = FakeEngine().model
    return (await render_prompt(templates, facts, model, messages, offer, options)).text


async def test_prompts_and_capabilities_are_llama_servers(renderer: Renderer) -> None:
    capabilities = {stem: names.split() for stem, names in rows("chat_capabilities.tsv")}
    wrong = []
    n_same = 0
    for stem in sorted({row[1] for row in rows("chat_prompts.tsv")}):
        file = llama_source() / "models" / "templates" / f"{stem}.jinja"
        templates, settings = await loaded(renderer, chat_template_file=file)
        for digest, _, case, *differs in (r for r in rows("chat_prompts.tsv") if r[1] == stem):
            try:
                text = await prompt_of(templates, settings, CHAT_CASES[case])
                got = hashlib.sha256(text.encode()).hexdigest()[:16]
            except ApiError:
                got = "-"
            n_same += got == digest
            if got != digest and not differs:
                wrong.append((stem, case))
        found = templates.choose(has_tools=False).capabilities
        can = [name.removeprefix("supports_") for name, value in found.items() if value]
        if can != capabilities.get(stem, can):
            wrong.append((stem, " ".join(can)))
    assert wrong == []
    assert n_same >= 1253


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for i in range(10**9) %}x{% endfor %}", "ange"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "1 s"),
        ("{{ 'a' * 10**9 }}", ""),
        ("{{ 'a' * messages|length * 10**9 }}", "memory"),
        ("{{ 10 ** (10 ** messages|length * 10**8) }}", "1 s"),
        ("{{ '%1000000000d' % messages|length }}", "memory"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"),
        ("{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}", "characters"),
        ("{{ raise_exception('no ' + messages[0].role) }}", "no user"),
        ("{% if %}", "line 1"),
        ("{{ messages.__class__.__mro__ }}{{ ''.__class__ }}", ""),
    ],
)
async def test_a_harmful_template_fails_its_request_and_nothing_else(
    template: str, said: str
) -> None:
    engine = FakeEngine()
    engine.model = replace(engine.model, chat_template=template)  # it came with the file
    app = make_app(engine)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    started = time.monotonic()
    request = await asyncio.wait_for(post(app, "/apply-template", HELLO).done(), 30)
    took_s = time.monotonic() - started
    ticking.cancel()
    if "__class__" in template:  # the sandbox: an empty text, no way out
        assert request.json["prompt"] == ""
    else:
        assert request.status == 400
        assert request.json["error"]["message"].startswith("chat template: ")
        assert said in request.json["error"]["message"]
    # The event loop went on: it never stood still for most of a second.
    assert ticks >= int(took_s) * 2
    props = await get(app, "/props").done()
    assert props.json["chat_template"] == template
    app.state.templates.close()


async def test_the_process_comes_back_after_a_bomb(renderer: Renderer) -> None:
    loop = "{% for j in range(99999) %}{% endfor %}"
    bomb = (
        "{% if messages|length > 1 %}{% for i in range(99999) %}"
        + loop
        + "{% endfor %}{% endif %}ok"
    )
    templates, settings = await loaded(renderer, chat_template=bomb)
    assert await prompt_of(templates, settings, HELLO) == "ok"
    with pytest.raises(ApiError, match="1 s"):
        await prompt_of(templates, settings, {"messages": HELLO["messages"] * 2})
    assert await prompt_of(templates, settings, HELLO) == "ok"


async def test_a_built_in_template_by_its_name(renderer: Renderer) -> None:
    for name in ("llama3", "gemma"):
        templates, settings = await loaded(renderer, chat_template=name)
        assert "Hello" in await prompt_of(templates, settings, HELLO)
    templates, settings = await loaded(renderer, chat_template="chatml")
    assert (await prompt_of(templates, settings, HELLO)).startswith("<|im_start|>user\n")


async def test_without_jinja_llama_cpp_formats() -> None:
    app = make_app(FakeEngine(), jinja=False)
    request = await post(app, "/apply-template", HELLO).done()
    assert request.json["prompt"] == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = await post(app, "/apply-template", HELLO | {"tools": tools}).done()
    assert request.status == 400


async def test_variables_of_the_command_line_and_of_a_request(renderer: Renderer) -> None:
    template = "{{ a }} {{ b }} {{ enable_thinking }} {{ reasoning_effort }}"
    templates, settings = await loaded(
        renderer,
        chat_template=template,
        chat_template_kwargs='{"a": 1, "b": 2}',
        reasoning="on",
        reasoning_effort="low",
    )
    assert await prompt_of(templates, settings, HELLO) == "1 2 True low"
    body = HELLO | {"chat_template_kwargs": {"b": 3, "enable_thinking": False}}
    assert await prompt_of(templates, settings, body) == "1 3 False low"
    body = HELLO | {"reasoning_effort": "none"}
    assert await prompt_of(templates, settings, body) == "1 2 False "


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "web"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"reasoning_format": "loud"}, "reasoning_format"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs"),
        ({"add_generation_prompt": "yes"}, "add_generation_prompt"),
        ({"continue_final_message": 1.5}, "continue_final_message"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"reasoning_budget_tokens": "many"}, "reasoning_budget_tokens"),
        ({"thinking_budget_tokens": -2}, "thinking_budget_tokens"),
        ({"reasoning_budget_message": 5}, "reasoning_budget_message"),
        ({"reasoning_control": "yes"}, "reasoning_control"),
    ],
)
async def test_a_bad_field_is_named(body: dict[str, Any], param: str) -> None:
    app = make_app(FakeEngine())
    request = await post(app, "/v1/chat/completions", HELLO | body).done()
    assert (request.status, request.json["error"]["param"]) == (400, param)


async def test_a_second_template_is_for_requests_with_tools() -> None:
    engine = FakeEngine()
    engine.model = replace(
        engine.model, chat_template="plain", chat_template_tool_use="{{ tools[0].function.name }}"
    )
    app = make_app(engine)
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert (await post(app, "/apply-template", HELLO).done()).json == {"prompt": "plain"}
    request = await post(app, "/apply-template", HELLO | {"tools": tools}).done()
    assert request.json == {"prompt": "f"}
    props = (await get(app, "/props").done()).json
    assert props["chat_template"] == "plain"
    assert props["chat_template_tool_use"] == "{{ tools[0].function.name }}"
    app.state.templates.close()
