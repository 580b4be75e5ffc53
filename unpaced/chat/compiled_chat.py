"""From a chat request's body to what is generated and how its text is read."""

import secrets
import string
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from unpaced.chat.answer.harmony import CALL, is_harmony
from unpaced.chat.answer.parser import AnswerSyntax, ChatParser
from unpaced.chat.messages import read_messages
from unpaced.chat.options import ChatOptions, read_options
from unpaced.chat.prompt import ChatPrompt, render_prompt
from unpaced.chat.reasoning_ends import reasoning_ends
from unpaced.chat.reasoning_rules import (
    after_harmony_reasoning,
    after_possible_reasoning,
    after_reasoning,
    harmony_final_header,
)
from unpaced.chat.templates import ChatTemplates, ReasoningTags, TemplateFacts
from unpaced.chat.tools.grammar import tool_grammar
from unpaced.chat.tools.offer import ToolOffer, read_tools
from unpaced.chat.tools.spelling import Spelling, mark_trigger
from unpaced.chat.tools.syntax import JSON_CALL
from unpaced.chat.unasked import unasked_calls
from unpaced.grammar.spec import GrammarSpec
from unpaced.http.errors import invalid, invalid_field
from unpaced.request.grammar_fields import read_grammar
from unpaced.request.reasoning import Reasoning, read_chat_reasoning
from unpaced.schemas.completion import CompletionBody, parse_completion
from unpaced.values.json_values import json_type

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.request.model_host import ModelHost
    from unpaced.settings import Settings

_ALPHABET: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class CompiledChat:
    """A chat request, ready to run. `body` holds the rendered prompt and all native fields."""

    prompt: str
    body: CompletionBody
    syntax: AnswerSyntax
    grammar: GrammarSpec | None = None
    reasoning: Reasoning | None = None

    def new_parser(self) -> ChatParser:
        """A parser for one choice's text."""
        return ChatParser(self.syntax, _new_call_id)


async def compile_chat(
    host: "ModelHost",
    templates: ChatTemplates,
    body: dict[str, Any],
    *,
    repeats_prefill: bool = True,
) -> CompiledChat:
    """Check a chat body and render its prompt. Raises: ApiError (400).

    `repeats_prefill`: the answer's message begins with what the client wrote of it.
    """
    engine, settings, model = host.engine, host.settings, host.engine.model
    messages = read_messages(body)
    offer = read_tools(body, settings.max_tools)
    await templates.load(model)
    facts = templates.choose(has_tools=bool(offer.tools))
    _check_together(body, offer, facts)
    options = read_options(body, messages, settings, facts)
    prompt = await render_prompt(templates, facts, model, messages, offer, options)
    native = parse_completion(_native_body(body, prompt.text, offer))
    syntax = _answer_syntax(settings, facts, offer, options, prompt)
    if options.continuation and repeats_prefill:
        syntax = replace(
            syntax,
            content_so_far=prompt.content,
            reasoning_so_far=prompt.reasoning,
            streams_so_far=options.streams_prefill,
        )
    elif prompt.opening and options.reasoning_format == "none":
        syntax = replace(syntax, content_so_far=prompt.opening)
    may_think = prompt.may_think and options.reasoning_format != "none"
    return CompiledChat(
        prompt=prompt.text,
        body=native,
        syntax=syntax,
        grammar=await _grammar(engine, settings, native, syntax, offer, may_think=may_think),
        reasoning=_reasoning(native, facts, options, prompt, is_call=offer.choice == "required"),
    )


def _answer_syntax(
    settings: "Settings",
    facts: TemplateFacts,
    offer: ToolOffer,
    options: ChatOptions,
    prompt: ChatPrompt,
) -> AnswerSyntax:
    if settings.skip_chat_parsing or facts.builtin:
        return AnswerSyntax()
    tags = facts.reasoning
    parallel = facts.can("parallel_tool_calls") if offer.parallel is None else offer.parallel
    is_content = options.continuation == "content"
    if is_harmony(facts.source) and not is_content:
        return AnswerSyntax(
            opens_reasoning=prompt.opens_reasoning,
            reasoning_format=options.reasoning_format,
            syntax=CALL if offer.is_open else None,
            tools=offer.only if offer.is_open else (),
            max_calls=1,
            harmony=True,
        )
    return AnswerSyntax(
        reasoning=None if tags is None or is_content else (tags.start, tags.end),
        opens_reasoning=prompt.opens_reasoning,
        ends_reasoning=prompt.ends_reasoning,
        spacing=None if tags is None else _spacing(tags, prompt),
        reasoning_format=options.reasoning_format,
        syntax=(facts.tools or JSON_CALL) if offer.is_open else None,
        tools=offer.only,
        max_calls=0 if parallel else 1,
    )


def _spacing(tags: ReasoningTags, prompt: ChatPrompt) -> tuple[str, str]:
    """The white space that the template has after its tags, and the prompt does not have yet."""
    after_start = tags.opening.removeprefix(tags.start)
    if prompt.opens_reasoning:
        there = prompt.opening or tags.opening  # reasoning that goes on has all of it
        after_start = after_start.removeprefix(there.removeprefix(tags.start))
    after_end = tags.closing.partition(tags.end)[2]
    return _leading_space(after_start), _leading_space(after_end)


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _reasoning(
    body: CompletionBody,
    facts: TemplateFacts,
    options: ChatOptions,
    prompt: ChatPrompt,
    *,
    is_call: bool,
) -> Reasoning | None:
    if facts.reasoning is None:
        return read_chat_reasoning(body)
    ends = reasoning_ends(facts.source, facts.reasoning)
    if is_call:  # the grammar of calls waits for the tag
        ends = tuple(end for end in ends if facts.reasoning.end in end)
    return Reasoning(
        start=facts.reasoning.start,
        ends=ends,
        n_tokens=options.reasoning_budget,
        message=options.budget_message,
        can_be_ended=options.reasoning_control,
        begun=prompt.reasoning_begun,
        is_tag_begun=True,
    )


async def _grammar(
    engine: "Engine",
    settings: "Settings",
    body: CompletionBody,
    syntax: AnswerSyntax,
    offer: ToolOffer,
    *,
    may_think: bool,
) -> GrammarSpec | None:
    """What the answer must be, where it must. The reasoning is free, whoever begins them."""
    if syntax.syntax is not None and offer.choice == "required":
        lead = await _lead(Spelling(engine), syntax, may_think=may_think, is_call=True)
        parallel = syntax.max_calls != 1
        return await tool_grammar(engine, syntax.syntax, syntax.tools, parallel=parallel, lead=lead)
    spec = await read_grammar(engine, body)
    if spec is None and syntax.syntax is not None and settings.grammar_default is None:
        return await unasked_calls(engine, syntax)
    if spec is None or spec.triggers:
        return spec
    if spec.kind == "json_schema" and (may_think or syntax.harmony):
        spell = Spelling(engine, "response_format")
        lead = await _lead(spell, syntax, may_think=may_think, is_call=False)
        return replace(spec, lead=lead)
    if syntax.reasoning is None or not syntax.opens_reasoning:
        return spec
    return replace(spec, triggers=(await mark_trigger(engine, syntax.reasoning[1], inside=False),))


async def _lead(spell: Spelling, syntax: AnswerSyntax, *, may_think: bool, is_call: bool) -> str:
    """What may come before the constrained part of the answer, as Lark's rules; "": nothing."""
    opened = syntax.opens_reasoning
    if syntax.harmony:
        header = "" if is_call else await harmony_final_header(spell)
        return await after_harmony_reasoning(spell, opened=opened, answer_header=header)
    if syntax.reasoning is None:
        return ""
    start, end = syntax.reasoning
    if opened:
        return await after_reasoning(spell, end)
    return await after_possible_reasoning(spell, start, end) if may_think else ""


def _check_together(body: dict[str, Any], offer: ToolOffer, facts: TemplateFacts) -> None:
    if facts.builtin and (offer.tools or offer.choice != "auto"):
        raise invalid("tools param requires --jinja flag", param="tools")
    if body.get("json_schema") is not None and body.get("grammar"):
        raise invalid("Cannot use both json_schema and grammar", param="grammar")
    if offer.is_open and body.get("grammar"):
        raise invalid("Cannot use custom grammar constraints with tools.", param="grammar")


def _native_body(body: dict[str, Any], prompt: str, offer: ToolOffer) -> dict[str, Any]:
    """The rest of the body, as /completion takes it."""
    native = body | {"prompt": prompt, "echo": None}
    if body.get("json_schema") == {}:  # of a chat it means any object, elsewhere any value
        native["json_schema"] = {"type": "object"}
    logprobs, top = body.get("logprobs"), body.get("top_logprobs")
    if logprobs is not None and not isinstance(logprobs, bool):
        raise invalid_field("logprobs", f"type must be boolean, but is {json_type(logprobs)}")
    if logprobs:
        if offer.tools and body.get("stream"):
            raise invalid("logprobs is not supported with tools + stream", param="logprobs")
        if top is not None and (isinstance(top, bool) or not isinstance(top, int)):
            raise invalid_field("top_logprobs", f"type must be number, but is {json_type(top)}")
        native["n_probs"] = 20 if top is None else top
    elif top is not None:
        raise invalid("top_logprobs requires logprobs to be set to true", param="top_logprobs")
    native.pop("logprobs", None)
    return native


def _new_call_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(32))
