"""The server's chat templates: which ones there are, and what is known of them."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from unpaced.chat.renderer import Renderer, RendererFault, TemplateError
from unpaced.chat.tools.syntax import ToolSyntax
from unpaced.http.errors import ApiError, invalid, server_fault, unavailable

if TYPE_CHECKING:
    from engine_ext import ModelInfo
    from unpaced.settings import Settings

CHATML: Final = """{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""
_DEFAULT: Final = "default"
_TOOL_USE: Final = "tool_use"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags around a model's reasoning. `opening` and `closing` are the same with the
    whitespace they have in a prompt."""

    start: str
    end: str
    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """One template. `builtin`: llama.cpp's code formats messages, not Jinja."""

    name: str
    source: str
    capabilities: dict[str, bool]
    reasoning: ReasoningTags | None = None
    tools: ToolSyntax | None = None
    builtin: bool = False
    fault: str = ""
    """Why it cannot be used at all; its requests are refused."""

    def can(self, what: str) -> bool:
        """A capability by llama-server's name, without `supports_`."""
        return self.capabilities[f"supports_{what}"]


# What is assumed of a template whose analysis fails: plain messages only.
_NOTHING_KNOWN: Final = {
    "supports_object_arguments": False,
    "supports_parallel_tool_calls": False,
    "supports_preserve_reasoning": False,
    "supports_reasoning_effort": False,
    "supports_string_content": True,
    "supports_system_role": True,
    "supports_tool_calls": False,
    "supports_tools": False,
    "supports_typed_content": False,
}


class ChatTemplates:
    """The template in use, and the model's second one for requests with tools, if it has one."""

    def __init__(self, settings: "Settings", renderer: Renderer | None = None) -> None:
        self._settings = settings
        self._renderer = renderer or Renderer(settings.max_queue_requests)
        self._loading: asyncio.Task[None] | None = None
        self.default: TemplateFacts | None = None
        self.tool_use: TemplateFacts | None = None

    async def start(self) -> None:
        """Start the template process ahead of time; it costs a tenth of a second."""
        if self._settings.jinja:
            try:
                await self._renderer.start()
            except RendererFault as error:  # tried again with the first request
                structlog.get_logger().warning("chat template", fault=str(error))

    async def load(self, model: "ModelInfo") -> None:
        """Compile and analyse the templates, once. A template that is broken fails its requests.

        Raises: ApiError (500, 503) where no template can be rendered; the next call tries again.
        """
        if self._loading is None or (self._loading.done() and not self._has_loaded()):
            self._loading = asyncio.create_task(self._load(model))
        try:
            await asyncio.shield(self._loading)
        except RendererFault as error:
            raise renderer_fault(error) from None

    def _has_loaded(self) -> bool:
        loading = self._loading
        return loading is not None and not loading.cancelled() and loading.exception() is None

    async def describe(self, model: "ModelInfo") -> tuple[TemplateFacts, TemplateFacts | None]:
        """`default` and `tool_use`; where no template can be rendered, no more than their text."""
        try:
            await self.load(model)
        except ApiError:
            default, tool_use = self._sources(model)
            second = TemplateFacts(_TOOL_USE, tool_use, _NOTHING_KNOWN) if tool_use else None
            return TemplateFacts(_DEFAULT, default, _NOTHING_KNOWN), second
        return self.choose(has_tools=False), self.tool_use

    def choose(self, *, has_tools: bool) -> TemplateFacts:
        """The template for a request; call `load` before."""
        assert self.default is not None
        return self.tool_use if has_tools and self.tool_use is not None else self.default

    async def render(self, facts: TemplateFacts, context: dict[str, Any]) -> str:
        """The prompt. Raises: ApiError: 400 with the template's own message, 500 or 503 for a fault
        of ours."""
        try:
            if facts.fault:
                raise TemplateError(facts.fault)
            return await self._renderer.render(facts.name, context)
        except TemplateError as error:
            raise template_fault(str(error)) from None
        except RendererFault as error:
            raise renderer_fault(error) from None

    def close(self) -> None:
        """End the template process. Idempotent."""
        self._renderer.close()

    async def _load(self, model: "ModelInfo") -> None:
        override = self._settings.template_override()
        if override and _is_builtin(override):
            facts = TemplateFacts(_DEFAULT, override, _NOTHING_KNOWN, builtin=True)
            self.default = facts
            return
        source, second = self._sources(model)
        if not self._settings.jinja:
            self.default = TemplateFacts(_DEFAULT, source, _NOTHING_KNOWN, builtin=True)
            return
        self.default = await self._facts(_DEFAULT, source)
        if second:
            self.tool_use = await self._facts(_TOOL_USE, second)

    def _sources(self, model: "ModelInfo") -> tuple[str, str]:
        """Texts of the default template and of the second one, which may be empty."""
        override = self._settings.template_override()
        source = override or model.chat_template or ""
        second = "" if override else model.chat_template_tool_use or ""
        if not self._settings.jinja:
            return source or CHATML, second
        return (second or CHATML) if source in ("", "chatml") else source, second

    async def _facts(self, name: str, source: str) -> TemplateFacts:
        try:
            await self._renderer.compile(name, _patched(source))
        except TemplateError as error:
            structlog.get_logger().warning("chat template", template=name, fault=str(error))
            return TemplateFacts(name, source, _NOTHING_KNOWN, fault=str(error))
        try:
            found = await self._renderer.analyse(name)
        except TemplateError as error:
            structlog.get_logger().warning("chat template", template=name, fault=str(error))
            return TemplateFacts(name, source, _NOTHING_KNOWN)
        tags = found["reasoning"]
        return TemplateFacts(
            name=name,
            source=source,
            capabilities=found["capabilities"],
            reasoning=None if tags is None else ReasoningTags(**tags),
            tools=None if found["tools"] is None else ToolSyntax(**found["tools"]),
        )


def template_fault(message: str) -> ApiError:
    """400: the template refuses."""
    return invalid(f"chat template: {message}", param="messages")


def renderer_fault(error: RendererFault) -> ApiError:
    """500 or 503: nothing is wrong with the messages."""
    return unavailable(str(error)) if error.is_passing else server_fault(str(error))


def _is_builtin(template: str) -> bool:
    if "{" in template or len(template) > 64 or template == "chatml":
        return False
    from engine_ext import builtin_templates  # maps libllama: only if needed

    return template in builtin_templates()


def _patched(source: str) -> str:
    """Two checks that well-known templates make in vain are left out, as llama-server does.

    Source: llama.cpp 0c1e57098, common/chat.cpp:784-804 (common_chat_templates_init).
    """
    if "<|channel|>" in source:
        source = source.replace(
            '{%- if "<|channel|>analysis<|message|>" in message.content or '
            '"<|channel|>final<|message|>" in message.content %}',
            "{%- if false %}",
        )
    if "[TOOL_CALLS]" in source:
        source = source.replace(
            "{%- if (message['content'] is none or message['content'] == '' or "
            "message['content']|length == 0) and (message['tool_calls'] is not defined or "
            "message['tool_calls'] is none or message['tool_calls']|length == 0) %}",
            "{%- if false %}",
        )
    return source
