"""From a chat request's body to what is generated and how its text is read."""

import secrets
import string
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from server.chat.harmony import CALL, is_harmony
from server.chat.messages import read_messages
from server.chat.options import ChatOptions, read_options
from server.chat.parser import AnswerSyntax, ChatParser
from server.chat.prompt import ChatPrompt, render_prompt
from server.chat.templates import TemplateFacts
from server.chat.tools.grammar import budget_grammar, mark_trigger, tool_grammar
from server.chat.tools.offer import ToolOffer, read_tools
from server.chat.tools.syntax import JSON_CALL
from server.chat.tools.unasked import unasked_calls
from server.errors import invalid, invalid_field
from server.grammar.fields import read_grammar
from server.grammar.spec import GrammarSpec
from server.schemas.completion import CompletionBody, parse_completion
from server.schemas.values import json_type

if TYPE_CHECKING:
    from server.state import ServerState

_ALPHABET: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """A chat request, ready to run. `body` holds the rendered prompt and all native fields."""

    prompt: str
    body: CompletionBody
    syntax: AnswerSyntax
    grammar: GrammarSpec | None = None

    def new_parser(self) -> ChatParser:
        """A parser for one choice's text."""
        return ChatParser(self.syntax, _new_call_id)


async def prepare_chat(
    state: "ServerState", body: dict[str, Any], *, repeats_prefill: bool = True
) -> ChatPlan:
    """Check a chat body and render its prompt. Raises: ApiError (400).

    `repeats_prefill`: the answer's message begins with what the client wrote of it.
    """
    messages = read_messages(body)
    offer = read_tools(body)
    templates, model = state.chat, state.engine.model
    await templates.load(model)
    facts = templates.choose(has_tools=bool(offer.tools))
    _check_together(body, offer, facts)
    options = read_options(body, messages, state.settings, facts)
    prompt = await render_prompt(templates, facts, model, messages, offer, options)
    native = parse_completion(_native_body(body, prompt.text, offer))
    syntax = _answer_syntax(state, facts, offer, options, prompt)
    if options.continuation and repeats_prefill:
        syntax = replace(
            syntax,
            content_so_far=prompt.content,
            reasoning_so_far=prompt.reasoning,
            streams_so_far=options.streams_prefill,
        )
    elif prompt.opening and options.reasoning_format == "none":
        syntax = replace(syntax, content_so_far=prompt.opening)
    return ChatPlan(
        prompt=prompt.text,
        body=native,
        syntax=syntax,
        grammar=await _grammar(state, native, syntax, offer, options.reasoning_budget),
    )


def _answer_syntax(
    state: "ServerState",
    facts: TemplateFacts,
    offer: ToolOffer,
    options: ChatOptions,
    prompt: ChatPrompt,
) -> AnswerSyntax:
    if state.settings.skip_chat_parsing or facts.builtin:
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
        reasoning_format=options.reasoning_format,
        syntax=(facts.tools or JSON_CALL) if offer.is_open else None,
        tools=offer.only,
        max_calls=0 if parallel else 1,
    )


async def _grammar(
    state: "ServerState",
    body: CompletionBody,
    syntax: AnswerSyntax,
    offer: ToolOffer,
    budget: int,
) -> GrammarSpec | None:
    """What the answer must be, where it must. Thoughts are free where the prompt opens them."""
    after = None
    if syntax.reasoning is not None and syntax.opens_reasoning:
        after = syntax.reasoning[1]
    engine = state.engine
    if syntax.syntax is not None and offer.choice == "required":
        parallel = syntax.max_calls != 1
        return await tool_grammar(
            engine, syntax.syntax, syntax.tools, parallel=parallel, after=after, budget=budget
        )
    spec = await read_grammar(engine, body)
    if budget >= 0 and syntax.reasoning is not None:
        if spec is not None:
            raise invalid_field(
                "reasoning_budget_tokens", "not supported together with a grammar or schema"
            )
        return await budget_grammar(engine, syntax.reasoning, budget, opened=syntax.opens_reasoning)
    if spec is None and syntax.syntax is not None and state.settings.grammar_default is None:
        return await unasked_calls(engine, syntax)
    if spec is None or after is None or spec.triggers:
        return spec
    return replace(spec, triggers=(await mark_trigger(engine, after, inside=False),))


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
