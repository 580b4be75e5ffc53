"""From messages to the text of a prompt: what templates expect of messages, and rendering.

Source: llama.cpp 0c1e57098, common/chat.cpp (common_chat_templates_apply_jinja,
common_chat_template_direct_apply_impl).
"""

import asyncio
import datetime
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from unpaced.chat.options import ChatOptions
from unpaced.chat.templates import ChatTemplates, TemplateFacts, template_fault
from unpaced.chat.tools.offer import ToolOffer
from unpaced.http.errors import invalid
from unpaced.rendering.common_prefix import common_prefix

if TYPE_CHECKING:
    from engine_ext import ModelInfo

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """`opens_reasoning`: the text ends within the model's reasoning, whose tag and beginning are
    `reasoning_begun`; `opening`: the same where the template wrote it. `ends_reasoning`: the text
    ends with its end, and `opening` with it. `may_think`: the answer may begin with reasoning.
    `content` and `reasoning`: the parts of the answer that the client wrote and the text holds."""

    text: str
    opens_reasoning: bool = False
    opening: str = ""
    reasoning_begun: str = ""
    may_think: bool = False
    content: str = ""
    reasoning: str = ""
    ends_reasoning: bool = False


async def render_prompt(
    templates: ChatTemplates,
    facts: TemplateFacts,
    model: "ModelInfo",
    messages: Messages,
    offer: ToolOffer,
    options: ChatOptions,
) -> ChatPrompt:
    """Render. Raises: ApiError (400)."""
    if facts.builtin:
        return ChatPrompt(await asyncio.to_thread(_format_builtin, facts, messages, options))
    last = messages[-1] if options.continuation else None
    context = _context(facts, model, offer, options)
    context["messages"] = _fit(messages[:-1] if last else messages, facts, offer)
    if options.add_generation_prompt:
        context["add_generation_prompt"] = True
    text = await templates.render(facts, context)
    if last is not None:
        longer = await templates.render(facts, context | {"add_generation_prompt": True})
        start = longer[len(common_prefix(text, longer)) :]
        text += _continue(start, last, facts, options)
    text = _without_specials(text, model)
    if last is not None:
        goes_on = options.continuation == "reasoning" and facts.reasoning is not None
        content = "" if goes_on else _text_of(last["content"], "\n\n")
        reasoning = last.get("reasoning_content", "")
        return ChatPrompt(
            text,
            goes_on,
            reasoning_begun=facts.reasoning.opening + reasoning
            if goes_on and facts.reasoning
            else "",
            content=content,
            reasoning=reasoning,
        )
    tags = facts.reasoning
    if tags is None:
        return ChatPrompt(text)
    if text.rstrip().endswith(tags.start):
        opening = text[text.rindex(tags.start) :]
        return ChatPrompt(text, True, opening, opening)
    thinks = options.enable_thinking and options.add_generation_prompt
    if not text.rstrip().endswith(tags.end):
        return ChatPrompt(text, may_think=thinks)
    at = text.rfind(tags.start) if options.add_generation_prompt else -1
    return ChatPrompt(text, opening=text[at:] if at >= 0 else "", ends_reasoning=True)


def _context(
    facts: TemplateFacts, model: "ModelInfo", offer: ToolOffer, options: ChatOptions
) -> dict[str, Any]:
    now = datetime.datetime.now()  # local time, as in llama-server
    context: dict[str, Any] = {}
    preserve = options.variables.get("preserve_reasoning")
    if isinstance(preserve, bool):
        context |= {
            "preserve_thinking": preserve,
            "clear_thinking": not preserve,
            "truncate_history_thinking": not preserve,
            "drop_thinking": not preserve,
        }
    effort = options.variables.get("reasoning_effort")
    if effort and isinstance(effort, str):
        context |= {"reasoning_effort": effort, "reasoning_strength": effort}
    context |= {
        "bos_token": model.bos_piece,
        "eos_token": model.eos_piece,
        "enable_thinking": options.enable_thinking,
        "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"),
    }
    if offer.tools:
        context["tools"] = [tool.to_json() for tool in offer.tools]
    return context | options.variables


def _fit(messages: Messages, facts: TemplateFacts, offer: ToolOffer) -> Messages:
    """The messages as this template can read them."""
    fitted = [dict(message) for message in messages]
    if "<|channel|>" not in facts.source:
        for message in fitted:
            if message["role"] == "developer":
                message["role"] = "system"
    if offer.is_open and not facts.can("tools"):
        _describe_tools(fitted, offer)
    only_text = facts.can("string_content") and not facts.can("typed_content")
    only_parts = facts.can("typed_content") and not facts.can("string_content")
    for message in fitted:
        content = message["content"]
        if only_text and isinstance(content, list):
            message["content"] = _text_of(content)
        elif only_parts and isinstance(content, str):
            message["content"] = [{"type": "text", "text": content}]
    if not facts.can("system_role") and fitted and fitted[0]["role"] == "system":
        system = fitted.pop(0)
        if fitted:
            text = _text_of(system["content"]) + "\n" + _text_of(fitted[0]["content"])
            fitted[0]["content"] = text if not only_parts else [{"type": "text", "text": text}]
    if facts.can("object_arguments"):
        for message in fitted:
            if "tool_calls" in message:
                message["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    return fitted


def _describe_tools(messages: Messages, offer: ToolOffer) -> None:
    """A template that knows no tools: say what there is, and how to call it, in the system text.

    llama-server leaves the tools out of such a prompt, so that the model cannot know of them.
    """
    tools = json.dumps([tool.to_json()["function"] for tool in offer.only], ensure_ascii=False)
    text = (
        "You can call these functions, each described by a JSON schema:\n"
        f"{tools}\n"
        "To call one, answer with nothing but a JSON object of the form "
        '{"name": "<function>", "arguments": {...}}.'
    )
    if messages and messages[0]["role"] == "system":
        messages[0]["content"] = _text_of(messages[0]["content"]) + "\n\n" + text
    else:
        messages.insert(0, {"role": "system", "content": text})


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError as error:
        raise invalid(
            f"Failed to parse tool call arguments as JSON: {error}", param="messages"
        ) from None
    return call | {"function": function | {"arguments": arguments}}


def _continue(start: str, last: dict[str, Any], facts: TemplateFacts, options: ChatOptions) -> str:
    """The beginning of the answer that the client wrote."""
    if facts.reasoning is not None:
        tags = facts.reasoning
        head, _, _ = start.partition(tags.start)
        start = head + tags.opening + last.get("reasoning_content", "")
        if options.continuation == "content":
            start += tags.closing
    if options.continuation == "content":
        start += _text_of(last["content"], "\n\n")
    return start


def _without_specials(text: str, model: "ModelInfo") -> str:
    """The tokeniser adds BOS and EOS where the model wants them: not twice."""
    if model.add_bos and model.bos_piece:
        text = text.removeprefix(model.bos_piece)
    if model.add_eos and model.eos_piece:
        text = text.removesuffix(model.eos_piece)
    return text


def _text_of(content: str | list[dict[str, str]], separator: str = "\n") -> str:
    if isinstance(content, str):
        return content
    return separator.join(part["text"] for part in content)


def _format_builtin(facts: TemplateFacts, messages: Messages, options: ChatOptions) -> str:
    from engine_ext import format_chat  # maps libllama: only if needed

    chat = [(message["role"], _text_of(message["content"])) for message in messages]
    try:
        return format_chat(facts.source, chat, add_generation_prompt=options.add_generation_prompt)
    except ValueError as error:
        raise template_fault(f"{error}; try --jinja") from None
